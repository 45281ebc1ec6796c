package nginx

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"pointsman/attach"
	ngx "pointsman/nginx"
)

// route is a proxy_pass in a location. A location in a file that several servers
// include is one route with several occurrences.
type route struct {
	pass        *ngx.Directive
	occurrences []*ngx.Directive // locations
	scheme      string
	host        string // an upstream, host:port, or a variable
	uri         string // what a path is replaced by, with "" for none
	targets     []*target
	problem     string // why it cannot be attached to
	check       bool   // it is for health checks only
}

// target is what a proxy_pass leads to: an upstream, or a server.
type target struct {
	host     string
	upstream *ngx.Directive // nil for a server
	pool     string
	score    int
	why      []string
}

var (
	passForm = regexp.MustCompile(`^(https?)://([^/$]+|\$\w+|\$\{\w+\})(/.*|\$request_uri)?$`)

	llmPath = regexp.MustCompile(`/v1/\(?(chat|completions|embeddings|models|responses|messages|rerank|audio)|/(generate|generate_stream|chat/completions)\b`)
	v1Path  = regexp.MustCompile(`(^|[^\w])/v1\b`)
	llmName = regexp.MustCompile(`(?i)llm|sglang|llama|\bgpt|openai|mi[sx]tral|qwen|gemma|deepseek|trt|inference|genai`)
	llmPort = regexp.MustCompile(`:(8000|30000|11434)$`)
	anyPort = regexp.MustCompile(`:(8001|8002|8080|8081|8888|9000)$`)
	seconds = regexp.MustCompile(`^([3-9][0-9]{2}|[0-9]{4,})s?$|^[0-9]+(m|h|d)$`)
)

// Scores of targets that look like LLM engines: certain is enough to attach, doubtful to
// ask.
const (
	certain  = 3
	doubtful = 2
)

// routes finds every proxy_pass, and its targets.
func (c *configuration) routes() (list []*route, targets []*target) {
	at := map[place]*route{}
	c.http.Walk(func(d *ngx.Directive) {
		if d.Name != "proxy_pass" || len(d.Args) != 1 {
			return
		}
		r := at[placeOf(d)]
		if r == nil {
			r = &route{pass: d}
			at[placeOf(d)] = r
			list = append(list, r)
		}
		r.occurrences = append(r.occurrences, d.Parent)
	})
	find := func(host string) *target {
		for _, t := range targets {
			if strings.EqualFold(t.host, host) {
				return t
			}
		}
		t := &target{host: host}
		for _, u := range c.http.Own("upstream") {
			if len(u.Args) == 1 && strings.EqualFold(u.Args[0], host) {
				t.upstream = u
			}
		}
		targets = append(targets, t)
		return t
	}
	for _, r := range list {
		m := passForm.FindStringSubmatch(r.pass.Args[0])
		if m == nil {
			to := r.pass.Args[0]
			r.problem = fmt.Sprintf("pointsman cannot tell where proxy_pass %s leads", to)
			if strings.HasPrefix(to, "$") {
				r.problem += fmt.Sprintf(": write proxy_pass http://%s, and keep the http:// out of the variable", to)
			}
			continue
		}
		r.scheme, r.host, r.uri = m[1], strings.NewReplacer("{", "", "}", "").Replace(m[2]), m[3]
		if r.uri == "$request_uri" {
			r.uri = ""
		}
		for _, host := range c.hosts(r) {
			t := find(host)
			r.targets = append(r.targets, t)
			c.sign(r, t)
		}
		c.trouble(r)
	}
	return list, targets
}

// hosts are the upstreams or servers that a route may lead to: those that its
// variable can be, by maps and sets.
func (c *configuration) hosts(r *route) (hosts []string) {
	if !strings.HasPrefix(r.host, "$") {
		return []string{r.host}
	}
	add := func(v string) {
		if v != "" && !strings.Contains(v, "$") && !slices.Contains(hosts, v) {
			hosts = append(hosts, v)
		} else if strings.Contains(v, "$") {
			r.problem = "the variable " + r.host + " is made of others"
		}
	}
	c.http.Walk(func(d *ngx.Directive) {
		switch {
		case (d.Name == "map" || d.Name == "split_clients") && len(d.Args) == 2 && d.Args[1] == r.host:
			for _, e := range d.Block {
				if len(e.Args) == 1 && e.Name != "include" {
					add(e.Args[0])
				}
			}
		case d.Name == "set" && len(d.Args) == 2 && d.Args[0] == r.host:
			add(d.Args[1])
		}
	})
	if len(hosts) == 0 && r.problem == "" {
		r.problem = "the variable " + r.host + " is not from a map or set"
	}
	return hosts
}

// sign adds a sign that a target is one of LLM engines.
func (c *configuration) sign(r *route, t *target) {
	add := func(n int, what string) {
		if !slices.Contains(t.why, what) {
			t.score += n
			t.why = append(t.why, what)
		}
	}
	for _, l := range r.occurrences {
		path := strings.Join(l.Args, " ")
		if p := llmPath.FindString(path); p != "" {
			add(certain, "requests for "+p)
		} else if v1Path.MatchString(path) {
			add(2, "requests for /v1")
		}
		if off := l.Own("proxy_buffering"); len(off) > 0 && slices.Contains(off[0].Args, "off") {
			add(1, "proxy_buffering off")
		}
		if long := l.Own("proxy_read_timeout"); len(long) > 0 && len(long[0].Args) == 1 && seconds.MatchString(long[0].Args[0]) {
			add(1, "a long proxy_read_timeout")
		}
	}
	if llmName.MatchString(t.host) {
		add(2, "its name")
	}
	addresses := []string{t.host}
	if t.upstream != nil {
		addresses = nil
		for _, s := range t.upstream.Own("server") {
			addresses = append(addresses, strings.Join(s.Args[:min(1, len(s.Args))], ""))
		}
	}
	for _, a := range addresses {
		if llmPort.MatchString(a) {
			add(2, "servers at port "+llmPort.FindStringSubmatch(a)[1])
			return
		}
	}
	for _, a := range addresses {
		if anyPort.MatchString(a) {
			add(1, "servers at port "+anyPort.FindStringSubmatch(a)[1])
			return
		}
	}
}

// trouble returns why a route cannot be attached to.
func (c *configuration) trouble(r *route) {
	say := func(format string, args ...any) {
		if r.problem == "" {
			r.problem = fmt.Sprintf(format, args...)
		}
	}
	l := r.occurrences[0]
	if l.Name != "location" {
		say("it is inside of %s: move it into a location of its own", l.Name)
		return
	}
	r.check = l.ChecksHealth()
	if t := l.Own("try_files"); len(t) > 0 {
		say("its location has try_files (%s) too", t[0].At())
	}
	for _, i := range l.Own("if") {
		ends := len(i.Own("return")) > 0
		for _, w := range i.Own("rewrite") {
			ends = ends || !slices.Contains(w.Args, "break")
		}
		if !ends {
			say("where the if at %s matches, nginx ignores try_files, by which pointsman is asked: use a map instead of that if", i.At())
		}
	}
	for _, e := range l.Own("limit_except") {
		if denies := e.Own("deny"); len(denies) == 0 || !slices.Contains(denies[0].Args, "all") {
			say("nginx ignores try_files, by which pointsman is asked, in the limit_except at %s: use a location of its own", e.At())
		}
	}
	if r.uri != "" && (strings.ContainsAny(r.uri, "$?'\"\\") || strings.HasPrefix(r.host, "$")) {
		say("pointsman cannot replace the path %q", r.uri)
	}
}

// problems are the reasons why routes cannot be attached to.
func problems(routes []*route) (list []error) {
	for _, r := range routes {
		list = append(list, fmt.Errorf("%s: %s", r.pass.At(), r.problem))
	}
	return list
}

// choose returns the targets to attach to: those named, or those that look like LLM
// engines. skipped are others that look a little like it.
func choose(targets []*target, named []string) (chosen []*target, skipped []string, err error) {
	var all []string
	for _, t := range targets {
		all = append(all, t.host)
	}
	for _, name := range named {
		i := slices.IndexFunc(targets, func(t *target) bool { return strings.EqualFold(t.host, name) })
		if i < 0 {
			return nil, nil, attach.Unknown("no proxy_pass leads to "+name, all)
		}
		chosen = append(chosen, targets[i])
	}
	if len(named) > 0 {
		return chosen, nil, nil
	}
	for _, t := range targets {
		switch {
		case t.score >= certain:
			chosen = append(chosen, t)
		case t.score >= doubtful:
			skipped = append(skipped, fmt.Sprintf("%s (%s)", t.host, strings.Join(t.why, ", ")))
		}
	}
	switch {
	case len(chosen) > 0:
	case len(skipped) > 0:
		err = fmt.Errorf("not sure which upstreams lead to LLM engines: name them with --backend; candidates: %s", strings.Join(skipped, "; "))
	case len(all) > 0:
		err = fmt.Errorf("no upstream looks like one of LLM engines: name it with --backend, one of %s", strings.Join(all, ", "))
	default:
		err = errNothing
	}
	return chosen, skipped, err
}

// server is a replica as nginx's configuration has it.
type server struct {
	address string
	weight  string
	at      string
}

// servers are the replicas of a target, with notes on servers that cannot be replicas.
func (t *target) servers(scheme string) (list []server, notes []string, err error) {
	if t.upstream == nil {
		a, err := hostPort(t.host, scheme)
		return []server{{address: a}}, nil, err
	}
	for _, s := range t.upstream.Own("server") {
		if len(s.Args) == 0 {
			continue
		}
		one := server{at: s.At()}
		if slices.Contains(s.Args, "backup") || slices.Contains(s.Args, "down") {
			notes = append(notes, fmt.Sprintf("%s: %s is no replica: it is a backup or down, and nginx uses it without a decision only", s.At(), s.Args[0]))
			continue
		}
		if one.address, err = hostPort(s.Args[0], "http"); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.At(), err)
		}
		if slices.ContainsFunc(list, func(o server) bool { return o.address == one.address }) {
			continue
		}
		for _, a := range s.Args[1:] {
			if w, ok := strings.CutPrefix(a, "weight="); ok && w != "1" {
				one.weight = w
			}
		}
		list = append(list, one)
	}
	if len(list) == 0 {
		err = fmt.Errorf("%s: upstream %s has no servers", t.upstream.At(), t.host)
	}
	return list, notes, err
}

// hostPort is an address of nginx's as host:port.
func hostPort(s, scheme string) (string, error) {
	if strings.HasPrefix(s, "unix:") || strings.Contains(s, "$") {
		return "", errors.New(s + ": pointsman knows replicas by host:port only")
	}
	if host, port, err := net.SplitHostPort(s); err == nil {
		return net.JoinHostPort(host, port), nil
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(s, "[]"), port), nil
}
