package haproxy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pointsman/attach"
	"pointsman/misuse"
	"pointsman/resolve"
	"pointsman/templates"
)

// Options select what to attach to. Detach uses Paths, Out and DropIn.
type Options struct {
	Paths    []string // as HAProxy's -f: files, and folders of .cfg files
	Backends []string // empty = those that look like LLM engines
	Config   string   // pointsman.yaml; made where there is none, or the sample
	Out      string   // folder of our own files
	// OwnFile puts our sections into a file in Out, which HAProxy must be configured to
	// load, instead of the end of the user's last file.
	OwnFile bool
	// DropIn is the path of a drop-in of HAProxy's systemd unit, which makes the unit load
	// that file too; empty for a unit without EXTRAOPTS. Defaults is the text of
	// /etc/default/haproxy, which may set them.
	DropIn   string
	Defaults []byte
	// Resolve reads a configuration of pointsman; the name is for its errors.
	Resolve func(name string, text []byte) (*resolve.Config, error)
}

// Result is what attaching or detaching changes.
type Result struct {
	Changes []attach.Change // the user's files first, in their order, then ours
	Theirs  int             // how many of these are the user's
	Load    string          // file that HAProxy has to load by a further -f, empty for none
	Unload  bool            // a file is removed that HAProxy loads by a further -f: a reload would fail
	Pools   []string        // the backends that ask
	Notes   []string        // what the user should know

	spoe string // path of the SPOE file
	own  int    // index of the file with our sections, -1 for none
}

// Attach works out the changes. It writes nothing.
func Attach(o Options) (*Result, error) {
	c, err := read(o.Paths)
	if err != nil {
		return nil, err
	}
	config, err := attach.Read(o.Config)
	if err != nil {
		return nil, err
	}
	named := o.Backends
	var r *resolve.Config
	if attach.Configured(config.Before) {
		if r, err = o.Resolve(o.Config, config.Before); err != nil {
			return nil, err
		}
		if len(named) == 0 {
			for _, p := range r.Pools {
				if c.backend(p.Name) != nil {
					named = append(named, p.Name)
				}
			}
		}
	}
	backends, skipped, err := c.choose(named)
	if err != nil {
		return nil, err
	}
	p := &plan{configuration: c, edits: map[int][]attach.Edit{}, done: map[*section]bool{}}
	for _, s := range skipped {
		p.note("left alone, since it may be no LLM: %s; --backend takes it in", s)
	}
	if r == nil {
		text, notes, err := c.yaml(backends)
		if err != nil {
			return nil, err
		}
		p.notes = append(p.notes, notes...)
		if config.Before != nil {
			p.note("%s is the sample of the installation, and is replaced", o.Config)
		}
		config.After = []byte(text)
		if r, err = o.Resolve(o.Config, config.After); err != nil {
			return nil, err
		}
	}
	for _, b := range backends {
		pool := r.Pool(b.name)
		if pool == nil {
			return nil, fmt.Errorf("%s has no pool %s: add one under pools", o.Config, b.name)
		}
		p.compare(b, pool, o.Config)
	}
	p.access(r.File.HAProxy.RuntimeAPI)
	t, err := r.HAProxy()
	if err != nil {
		return nil, err
	}
	if t.SPOEConf, err = filepath.Abs(filepath.Join(o.Out, templates.SPOEFile)); err != nil {
		return nil, err
	}
	if err := templates.CheckSPOEConf(t.SPOEConf); err != nil {
		return nil, misuse.Of(err)
	}
	p.version, p.bufsize, p.large = t.Version, t.Bufsize, t.LargeBufsize
	if p.render, err = templates.AttachInPlace(t); err != nil {
		return nil, err
	}
	return p.result(backends, o, config, t.SPOEConf)
}

// compare notes servers that only one side has.
func (p *plan) compare(b *section, pool *resolve.Pool, config string) {
	list, odd := b.servers()
	if odd != "" || len(pool.Replicas) == 0 {
		return
	}
	replicas := map[string]string{}
	for _, r := range pool.Replicas {
		replicas[r.Name] = r.Address
	}
	for _, r := range pool.Serving() {
		replicas[r.Name] = r.Address
		if !slices.ContainsFunc(list, func(s server) bool { return s.name == r.Name }) {
			p.note("%s: %s %s has no server %s at %s, which is a replica in %s: add it here, or HAProxy gives the requests decided for it to others",
				p.where(b, b.statements[0].Line), b.kind, b.name, r.Name, r.Address, config)
		}
	}
	for _, s := range list {
		if address, is := replicas[s.name]; !is && !s.backup {
			p.note("%s: server %s is no replica of pool %s in %s: add it there", p.where(b, s.line), s.name, b.name, config)
		} else if is && address != s.address {
			p.note("%s: server %s is at %s, and in %s at %s", p.where(b, s.line), s.name, s.address, config, address)
		}
	}
}

// result makes the edits.
func (p *plan) result(backends []*section, o Options, config attach.Change, spoe string) (*Result, error) {
	res := &Result{own: -1, spoe: spoe, Theirs: len(p.sources)}
	for _, b := range backends {
		res.Pools = append(res.Pools, b.name)
		if err := p.backend(b); err != nil {
			return nil, err
		}
	}
	p.global()
	ownPath := ""
	switch {
	case o.OwnFile:
		ownPath = filepath.Join(o.Out, templates.AttachedFile)
		res.Load = ownPath
	case p.folder != "":
		ownPath = p.ownFile()
	default:
		p.ownSections()
	}
	for i, s := range p.sources {
		after, err := attach.Apply(s.plain, p.edits[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Path, err)
		}
		s.After = after
		res.Changes = append(res.Changes, s.Change)
	}
	if p.own != "" && p.own != ownPath {
		old, err := attach.Read(p.own)
		if err != nil {
			return nil, err
		}
		old.After = nil
		res.Changes = append(res.Changes, old)
	}
	if ownPath != "" {
		res.own = len(res.Changes)
		if err := res.write(ownPath, p.render.Sections); err != nil {
			return nil, err
		}
	}
	if err := res.write(spoe, p.render.SPOE.Text); err != nil {
		return nil, err
	}
	if o.OwnFile && o.DropIn != "" {
		if err := res.unit(o, ownPath); err != nil {
			return nil, err
		}
	}
	res.Changes = append(res.Changes, config)
	res.Notes = p.notes
	return res, nil
}

// envFile is the file in Out with the options of HAProxy's unit.
const envFile = "haproxy.env"

// unitHead begins the drop-in.
const unitHead = "# Has HAProxy load a file of pointsman's too. Written by `pointsman attach haproxy`.\n"

// unit makes HAProxy's systemd unit load the file, and keep its other options. The
// options of the unit and of /etc/default/haproxy come before a drop-in's.
func (r *Result) unit(o Options, file string) error {
	env := filepath.Join(o.Out, envFile)
	if err := r.write(env, CommandLine(file, o.Defaults)+"\n"); err != nil {
		return err
	}
	return r.write(o.DropIn, unitHead+"[Service]\nEnvironmentFile="+env+"\n")
}

// write sets the text of one of our files.
func (r *Result) write(path, text string) error {
	c, err := attach.Read(path)
	if err != nil {
		return err
	}
	c.After = []byte(text)
	r.Changes = append(r.Changes, c)
	return nil
}

// Detach works out the changes that remove everything again. pointsman.yaml stays: its
// owner may have edited it.
func Detach(o Options) (*Result, error) {
	c, err := read(o.Paths)
	if err != nil {
		return nil, err
	}
	res := &Result{own: -1, Theirs: len(c.sources)}
	for _, s := range c.sources {
		s.After = s.plain
		res.Changes = append(res.Changes, s.Change)
	}
	unit, err := attach.Read(o.DropIn)
	if err != nil && o.DropIn != "" {
		return nil, err
	}
	units := []string{filepath.Join(o.Out, envFile), ""}
	if strings.HasPrefix(string(unit.Before), unitHead) {
		units[1] = o.DropIn
	}
	for _, path := range append(units, c.own, filepath.Join(o.Out, templates.AttachedFile), filepath.Join(o.Out, templates.SPOEFile)) {
		if path == "" {
			continue
		}
		f, err := attach.Read(path)
		if err != nil {
			return nil, err
		}
		if f.After = nil; f.Before != nil {
			res.Changes = append(res.Changes, f)
			res.Unload = res.Unload || filepath.Base(path) == templates.AttachedFile
			if filepath.Base(path) == templates.AttachedFile && units[1] != "" {
				res.Notes = append(res.Notes, "HAProxy must no longer load "+path+": systemctl daemon-reload && systemctl restart haproxy")
			} else if filepath.Base(path) == templates.AttachedFile {
				res.Notes = append(res.Notes, "HAProxy must no longer load "+path+": take that -f from its command line (EXTRAOPTS in /etc/default/haproxy on Debian)")
			}
		}
	}
	return res, nil
}

// Changed reports whether anything changes.
func (r *Result) Changed() bool {
	for i := range r.Changes {
		if r.Changes[i].Changes() {
			return true
		}
	}
	return false
}

// Patch is the change of the user's files as a unified diff.
func (r *Result) Patch() string {
	var b strings.Builder
	for _, c := range r.Changes[:r.Theirs] {
		b.WriteString(attach.Diff(absolute(c.Path), c.Before, c.After))
	}
	return b.String()
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// CommandLine returns how to make HAProxy load a further file on Debian: with the EXTRAOPTS
// that are set already, or else those of its unit, which name the master's socket.
func CommandLine(file string, defaults []byte) string {
	options := "-S /run/haproxy-master.sock"
	for line := range strings.Lines(string(defaults)) {
		if set, ok := strings.CutPrefix(strings.TrimSpace(line), "EXTRAOPTS="); ok {
			options = strings.Trim(set, `"'`)
		}
	}
	if !strings.Contains(options, "-f "+file) {
		options = strings.TrimSpace(options + " -f " + file)
	}
	return fmt.Sprintf("EXTRAOPTS=%q", options)
}

// errAlready marks a configuration that HAProxy refuses as it is.
var errAlready = errors.New("haproxy refuses this configuration as it is, without pointsman's lines")

// Verify lets HAProxy check copies of the result. run runs haproxy with arguments and
// returns its output. Verify returns the warnings that HAProxy did not print before.
func (r *Result) Verify(run func(args ...string) (string, error)) (warnings []string, err error) {
	folder, err := os.MkdirTemp("", "pointsman-attach-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	t := trial{Result: r, folder: folder, names: map[string]string{}}
	defer t.clean()
	after, err := t.run(run, true)
	before, already := t.run(run, false)
	switch {
	case err != nil && already != nil:
		return nil, fmt.Errorf("%w:\n%s", errAlready, strings.Join(before, "\n"))
	case err != nil:
		return nil, fmt.Errorf("haproxy refuses the result, so nothing is written: %w\n%s", err, strings.Join(after, "\n"))
	}
	known := map[string]bool{}
	for _, line := range before {
		known[numbers.ReplaceAllString(line, "")] = true
	}
	for _, line := range after {
		if strings.Contains(line, "WARNING") && !known[numbers.ReplaceAllString(line, "")] {
			warnings = append(warnings, line)
		}
	}
	return warnings, nil
}
