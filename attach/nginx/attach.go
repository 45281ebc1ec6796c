package nginx

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"pointsman/attach"
	"pointsman/misuse"
	ngx "pointsman/nginx"
	"pointsman/resolve"
	"pointsman/templates"
)

// Options select what to attach to. Detach uses Main and Out.
type Options struct {
	Main     string   // nginx.conf
	Backends []string // upstreams, or host:port; empty = those that look like LLM engines
	Config   string   // pointsman.yaml; made where there is none, or the sample
	Out      string   // folder of our own files
	// AccessLog and ErrorLog are where nginx logs by default.
	AccessLog, ErrorLog string
	// Resolve reads a configuration of pointsman; the name is for its errors.
	Resolve func(name string, text []byte) (*resolve.Config, error)
}

// Result is what attaching or detaching changes.
type Result struct {
	Changes []attach.Change // the user's files first, in their order, then ours
	Theirs  int             // how many of these are the user's
	Asks    []string        // the locations that ask
	Notes   []string        // what the user should know

	conf *configuration
	out  string
}

// plan collects the edits.
type plan struct {
	*configuration
	o       *Options
	changes map[string][]change
	servers []*templates.NginxServer
	byPlace map[place]*templates.NginxServer
	asks    []templates.NginxAskSnippet
	res     *Result
}

// Attach works out the changes. It writes nothing.
func Attach(o Options) (*Result, error) {
	var err error
	if o.Out, err = filepath.Abs(o.Out); err != nil {
		return nil, err
	}
	c, err := read(o.Main, o.Out)
	if err != nil {
		return nil, err
	}
	routes, targets := c.routes()
	config, err := attach.Read(o.Config)
	if err != nil {
		return nil, err
	}
	scheme := map[*target]string{}
	for _, r := range routes {
		for _, t := range r.targets {
			if scheme[t] == "" {
				scheme[t] = r.scheme
			}
		}
	}
	var resolved *resolve.Config
	named := o.Backends
	if attach.Configured(config.Before) {
		if resolved, err = o.Resolve(o.Config, config.Before); err != nil {
			return nil, err
		}
		if len(named) == 0 {
			for _, t := range targets {
				if resolved.Pool(t.host) != nil || len(overlap(t, scheme[t], resolved)) > 0 {
					named = append(named, t.host)
				}
			}
		}
	}
	chosen, skipped, err := choose(targets, named)
	if err != nil {
		reasons := unclear(routes)
		if errors.Is(err, errNothing) && len(routes) > 0 {
			err, reasons = errNoTarget, problems(routes)
		}
		return nil, errors.Join(append([]error{err}, reasons...)...)
	}
	res := &Result{conf: c, out: o.Out}
	for _, err := range unclear(routes) {
		res.note("left alone: %v", err)
	}
	for _, s := range skipped {
		res.note("left alone, since it may be no LLM: %s; --backend takes it in", s)
	}
	if resolved == nil {
		name(chosen)
		text, notes, err := yaml(chosen, scheme)
		if err != nil {
			return nil, err
		}
		res.Notes = append(res.Notes, notes...)
		if config.Before != nil {
			res.note("%s is the sample of the installation, and is replaced", o.Config)
		}
		config.After = []byte(text)
		if resolved, err = o.Resolve(o.Config, config.After); err != nil {
			return nil, err
		}
	} else if err := match(chosen, scheme, resolved, o.Config); err != nil {
		return nil, err
	} else {
		res.compare(chosen, scheme, resolved, o.Config)
	}
	t, err := resolved.Nginx()
	if err != nil {
		return nil, err
	}
	if err := templates.CheckNginxDir(o.Out); err != nil {
		return nil, misuse.Of(err)
	}
	t.Dir = o.Out
	p := &plan{configuration: c, o: &o, changes: map[string][]change{}, byPlace: map[place]*templates.NginxServer{}, res: res}
	if err := p.routes(routes, chosen); err != nil {
		return nil, err
	}
	return res, p.finish(t, config)
}

// unclear are routes of LLM paths whose targets are unknown.
func unclear(routes []*route) (list []error) {
	for _, r := range routes {
		for _, l := range r.occurrences {
			path := strings.Join(l.Args, " ")
			if len(r.targets) == 0 && r.problem != "" && (llmPath.MatchString(path) || v1Path.MatchString(path)) {
				list = append(list, fmt.Errorf("%s: %s", r.pass.At(), r.problem))
				break
			}
		}
	}
	return list
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// routes makes each location that leads to a chosen target ask pointsman.
func (p *plan) routes(routes []*route, chosen []*target) error {
	var take []*route
	var left []string
	for _, r := range routes {
		some, all, pools := false, true, true
		for _, t := range r.targets {
			is := slices.Contains(chosen, t)
			some, all = some || is, all && is
			pools = pools && t.pool == t.host
		}
		if !some {
			continue
		}
		if !all && r.problem == "" {
			r.problem = "the variable " + r.host + " leads to others than LLM engines too: name them all with --backend, or part them"
		}
		if len(r.targets) > 1 && !pools && r.problem == "" {
			r.problem = "the variable " + r.host + " names upstreams, and the pools must have the same names"
		}
		switch {
		case r.problem != "":
			left = append(left, fmt.Sprintf("%s: %s", r.pass.At(), r.problem))
		case r.check:
			p.res.note("%s: left alone, since it is for health checks", r.pass.At())
		default:
			take = append(take, r)
		}
	}
	if len(take) == 0 {
		return fmt.Errorf("no location can ask pointsman:\n%s", strings.Join(left, "\n"))
	}
	for _, l := range left {
		p.res.note("left alone: %s", l)
	}
	for i, r := range take {
		number := i + 1
		if len(take) == 1 {
			number = 0
		}
		p.route(r, number)
	}
	return nil
}

// route makes one location ask.
func (p *plan) route(r *route, number int) {
	var first templates.NginxSet
	for i, l := range r.occurrences {
		s := p.set(r, l, p.o)
		s.Number = number
		if s.Pool = r.targets[0].pool; len(r.targets) > 1 {
			s.Pool = r.host
		}
		if i == 0 {
			first = s
		}
		d := enclosing(l, "server")
		server := p.byPlace[placeOf(d)]
		if server == nil {
			server = &templates.NginxServer{File: numbered(templates.NginxServerFile, len(p.servers)+1)}
			p.byPlace[placeOf(d)] = server
			p.servers = append(p.servers, server)
			p.add(d.File, change{from: d.Body, to: d.Body, line: true, text: p.include(server.File), why: "named locations that only pointsman leads to"})
		}
		if !slices.ContainsFunc(server.Sets, func(o templates.NginxSet) bool { return o.Number == number }) {
			server.Sets = append(server.Sets, s)
		}
	}
	ask := templates.NginxAskSnippet{File: numbered(templates.NginxAskFile, max(1, number)), Set: first}
	p.asks = append(p.asks, ask)
	p.res.Asks = append(p.res.Asks, fmt.Sprintf("location %s (%s)", strings.Join(r.occurrences[0].Args, " "), r.pass.At()))

	rewrite := replacement(r)
	if before := p.rewrites(r); before != nil {
		// Variables have to be set before a "rewrite … break" ends that.
		p.add(before.File, change{from: before.From, to: before.From, text: p.include(ask.File) + " ", why: "asks pointsman"})
		p.add(r.pass.File, change{from: r.pass.From, to: r.pass.To, text: rewrite, why: "what was here serves when there is no decision"})
		return
	}
	if rewrite != "" {
		rewrite = " " + rewrite
	}
	p.add(r.pass.File, change{from: r.pass.From, to: r.pass.To, text: p.include(ask.File) + rewrite,
		why: "asks pointsman; the proxy_pass serves when there is no decision"})
}

// rewrites is the first directive of a location that may end the setting of variables, if
// it comes before proxy_pass.
func (p *plan) rewrites(r *route) *ngx.Directive {
	l := r.occurrences[0]
	for _, d := range l.Block {
		if d.Name == "proxy_pass" {
			return nil
		}
		if !slices.Contains([]string{"rewrite", "if", "break", "return"}, d.Name) {
			continue
		}
		if d.File == r.pass.File {
			return d
		}
		for _, i := range l.Own("include") {
			if slices.Contains(i.Included, d.File) && i.File == r.pass.File {
				return i
			}
		}
	}
	return nil
}

// replacement is a rewrite with the effect of the path in a proxy_pass.
func replacement(r *route) string {
	args := r.occurrences[0].Args
	path := args[len(args)-1]
	if r.uri == "" || r.uri == path {
		return ""
	}
	if args[0] == "=" {
		return fmt.Sprintf("rewrite ^ %s break;", r.uri)
	}
	return fmt.Sprintf(`rewrite "(?s)^%s(.*)$" "%s$1" break;`, regexp.QuoteMeta(path), r.uri)
}

func (p *plan) include(file string) string {
	return "include " + filepath.Join(p.o.Out, file) + ";"
}

func (p *plan) add(file string, c change) { p.changes[file] = append(p.changes[file], c) }

// numbered is the name of the nth file of a kind.
func numbered(name string, n int) string {
	if n == 1 {
		return name
	}
	return strings.TrimSuffix(name, ".conf") + fmt.Sprintf("-%d.conf", n)
}

// ownFile matches the names of files that are ours.
var ownFile = regexp.MustCompile(`^nginx-(http|(server|ask)(-[0-9]+)?)\.conf$`)

func ours(name string) bool { return ownFile.MatchString(name) }

// finish renders our files and makes the edits.
func (p *plan) finish(t templates.Nginx, config attach.Change) error {
	file, at := p.httpPlace()
	p.add(file, change{from: at, to: at, line: true, text: p.include(templates.NginxHTTPFile), why: "upstreams of pointsman and its replicas"})
	var servers []templates.NginxServer
	for _, s := range p.servers {
		servers = append(servers, *s)
	}
	files, err := templates.AttachNginxSets(t, servers, p.asks)
	if err != nil {
		return err
	}
	for _, path := range p.order {
		s := p.files[path]
		if s.After, err = attach.Apply(s.plain, edits(s.plain, p.changes[path])); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if _, changed := p.changes[path]; changed || s.Changes() {
			p.res.Changes = append(p.res.Changes, s.Change)
		}
	}
	p.res.Theirs = len(p.res.Changes)
	for _, f := range files {
		own, err := attach.Read(filepath.Join(p.o.Out, f.Name))
		if err != nil {
			return err
		}
		own.After = []byte(f.Text)
		p.res.Changes = append(p.res.Changes, own)
	}
	if err := p.res.remove(func(name string) bool {
		return !slices.ContainsFunc(files, func(f templates.File) bool { return f.Name == name })
	}); err != nil {
		return err
	}
	p.res.Changes = append(p.res.Changes, config)
	return nil
}

// httpPlace is where our file is included at http level: at its beginning, so that each
// server knows its log format, but after the directives that nginx refuses after a map.
func (p *plan) httpPlace() (file string, at int) {
	file, at = p.http.File, p.http.Body
	for _, d := range p.http.Block {
		if d.Name == "map_hash_bucket_size" || d.Name == "map_hash_max_size" {
			file, at = d.File, d.To
		}
	}
	return file, at
}

// remove removes those of our files in Out that are not needed.
func (r *Result) remove(unneeded func(name string) bool) error {
	all, err := filepath.Glob(filepath.Join(r.out, "nginx-*.conf"))
	if err != nil {
		return err
	}
	for _, path := range all {
		if base := filepath.Base(path); ours(base) && unneeded(base) {
			c, err := attach.Read(path)
			if err != nil {
				return err
			}
			c.After = nil
			r.Changes = append(r.Changes, c)
		}
	}
	return nil
}

// Detach works out the changes that remove everything again. pointsman.yaml stays: its
// owner may have edited it.
func Detach(o Options) (*Result, error) {
	var err error
	if o.Out, err = filepath.Abs(o.Out); err != nil {
		return nil, err
	}
	c, err := read(o.Main, o.Out)
	if err != nil {
		return nil, err
	}
	res := &Result{conf: c, out: o.Out}
	for _, path := range c.order {
		s := c.files[path]
		if s.After = s.plain; s.Changes() {
			res.Changes = append(res.Changes, s.Change)
		}
	}
	res.Theirs = len(res.Changes)
	return res, res.remove(func(string) bool { return true })
}

// Changed reports whether anything changes.
func (r *Result) Changed() bool {
	return slices.ContainsFunc(r.Changes, func(c attach.Change) bool { return c.Changes() })
}
