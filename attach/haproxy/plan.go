package haproxy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pointsman/attach"
	hap "pointsman/haproxy"
	"pointsman/templates"
)

// ownHead begins a file that holds sections of ours only.
const ownHead = "# What pointsman needs in an HAProxy "

// plan gathers the edits of the user's files.
type plan struct {
	*configuration
	render  *templates.InPlace
	version templates.Version
	bufsize int // tune.bufsize that is needed, bytes
	large   int // tune.bufsize.large, 0 for none

	edits map[int][]attach.Edit // by source
	notes []string
	done  map[*section]bool // frontends and defaults that have their lines
}

// add adds lines to a section before a line of its file.
func (p *plan) add(s *section, at int, lines ...attach.Line) {
	indent := p.indent(s)
	for i := range lines {
		lines[i].Text = indent + lines[i].Text
	}
	p.edits[s.file] = append(p.edits[s.file], attach.Edit{At: at, New: lines})
}

// replace replaces a line.
func (p *plan) replace(s *section, line int, by attach.Line) {
	by.Text = p.indent(s) + by.Text
	p.edits[s.file] = append(p.edits[s.file], attach.Edit{At: line, Old: 1, New: []attach.Line{by}})
}

func (p *plan) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// backend adds what a backend needs, and what its frontends and their defaults
// need.
func (p *plan) backend(b *section) error {
	kept, err := p.keep(b)
	if err != nil {
		return err
	}
	ask, err := p.render.Ask(b.name, kept)
	if err != nil {
		return err
	}
	follow, err := p.render.Follow(b.name, kept)
	if err != nil {
		return err
	}
	// HAProxy warns of an http-request that comes after one of these.
	at := b.end()
	for i := range b.statements {
		s := &b.statements[i]
		if s.Is("use_backend") || s.Is("use-server") || s.Is("redirect") {
			before, _ := b.enclosing(s.Line)
			at = min(at, before)
		}
	}
	p.add(b, at, append(textLines(ask), p.filters(b)...)...)
	p.add(b, b.end(), p.followed(b, textLines(follow))...)
	for _, f := range p.frontends(b) {
		if err := p.frontend(f); err != nil {
			return err
		}
	}
	return nil
}

// followed drops lines for settings that the backend's owner has set otherwise.
func (p *plan) followed(b *section, lines []attach.Line) []attach.Line {
	return slices.DeleteFunc(lines, func(l attach.Line) bool {
		keyword, _, _ := strings.Cut(l.Text, " ")
		return (keyword == "retries" || keyword == "retry-on") && b.own(begins(keyword)) != nil
	})
}

// filters declares the filters that HAProxy adds by itself, but not beside a declared one.
func (p *plan) filters(b *section) (lines []attach.Line) {
	// HAProxy wants caches before compression.
	for i := range b.statements {
		s := &b.statements[i]
		name := ""
		if s.Is("http-response", "cache-store") || s.Is("http-request", "cache-use") {
			name = s.Arg(2)
		}
		line := attach.Line{Text: "filter cache " + name, Why: "beside another filter HAProxy wants it declared"}
		if name != "" && b.own(begins("filter", "cache", name)) == nil && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if uses, _ := b.find(begins("compression")); uses != nil && b.own(begins("filter", "compression")) == nil {
		lines = append(lines, attach.Line{Text: "filter compression", Why: "beside another filter HAProxy wants it declared"})
	}
	return lines
}

// frontend makes a frontend report how requests end.
func (p *plan) frontend(f *section) error {
	if p.done[f] {
		return nil
	}
	p.done[f] = true
	at := f.statements[0].Line + 1
	for i := range f.statements {
		s := &f.statements[i]
		if s.Is("bind") || s.Is("mode") || s.Is("log") || s.Is("no", "log") || s.Is("log-format") || s.Is("option", "httplog") || s.Is("option", "tcplog") {
			_, last := f.enclosing(s.Line)
			at = min(last+1, f.end())
		}
	}
	var lines []attach.Line
	for i, text := range p.render.Logs {
		why := "reports to pointsman how requests end"
		if i > 0 {
			why = "once more, in case the ring's process is reloaded"
		}
		lines = append(lines, attach.Line{Text: text, Why: why})
	}
	if steps, _ := f.find(begins("log-steps")); steps == nil && p.render.Fields == "" {
		if line := p.atEnd(f); line.Text != "" {
			lines = append(lines, line)
		}
	}
	if p.render.Fields != "" {
		if format := p.format(f); format.Text != "" {
			lines = append(lines, format)
		}
	}
	p.add(f, at, lines...)
	for _, silent := range []string{"dontlog-normal", "logasap"} {
		if f.option(silent) {
			p.note("%s: option %s: pointsman does not learn how requests end; remove it from this frontend and its defaults", p.where(f, f.statements[0].Line), silent)
		}
	}
	if f.parent == nil && !p.version.AtLeast(3, 0) && !f.option("abortonclose") {
		p.bare(f)
	}
	if d := f.parent; d != nil && !p.done[d] && !p.version.AtLeast(3, 3) && !f.option("abortonclose") {
		p.done[d] = true
		p.add(d, d.end(), attach.Line{Text: "option abortonclose", Why: "a client that leaves takes its request with it"})
	}
	return nil
}

// bare makes requests of a frontend without any defaults end with their clients: before
// HAProxy 3.0 only defaults can set that for a frontend.
func (p *plan) bare(f *section) {
	option := attach.Line{Text: "option abortonclose", Why: "a client that leaves takes its request with it"}
	if f.balances() {
		p.add(f, f.end(), option)
		return
	}
	option.Text = "    " + option.Text
	p.edits[f.file] = append(p.edits[f.file], attach.Edit{At: f.statements[0].Line, New: []attach.Line{{Text: "defaults"}, option}})
}

// global raises the size of buffers if it is too small: the agent sees as much of a request
// as fits into one.
func (p *plan) global() {
	p.buffers("tune.bufsize", p.bufsize, "what fits into a buffer is what pointsman sees of a request")
	if p.large > 0 {
		p.buffers("tune.bufsize.large", p.large, "a body up to this is held until pointsman has seen its head and tail")
	}
}

// buffers sets a size if there is none, or a smaller one.
func (p *plan) buffers(keyword string, want int, why string) {
	line := attach.Line{Text: keyword + " " + strconv.Itoa(want), Why: why}
	var first, set *section
	var size *hap.Statement
	for _, s := range p.sections {
		if s.kind != "global" {
			continue
		}
		if first == nil {
			first = s
		}
		if own := s.own(begins(keyword)); own != nil {
			size, set = own, s
		}
	}
	switch {
	case size != nil:
		if n, err := strconv.Atoi(size.Arg(1)); err != nil || n < want {
			p.replace(set, size.Line, line)
		}
	case first != nil:
		p.add(first, first.end(), line)
	default:
		line.Text = "    " + line.Text
		lines := []attach.Line{line}
		if keyword == "tune.bufsize" {
			lines = []attach.Line{{Text: "global"}, line}
		}
		p.edits[0] = append(p.edits[0], attach.Edit{At: 1, New: lines})
	}
}

// ownSections puts the agent's own sections at the end of the last file.
func (p *plan) ownSections() {
	last := len(p.sources) - 1
	var lines []attach.Line
	for text := range strings.Lines(p.render.Sections) {
		text = strings.TrimRight(text, "\n")
		indented := strings.HasPrefix(text, " ")
		for _, l := range textLines(text) {
			if indented {
				l.Text = "    " + l.Text
			}
			lines = append(lines, l)
		}
	}
	p.edits[last] = append(p.edits[last], attach.Edit{At: len(p.sources[last].lines) + 1, New: lines})
}

// ownFile is the path of the file with our sections in a folder that HAProxy reads: the
// last one, so that its defaults apply to nothing else.
func (c *configuration) ownFile() string {
	name := "zz-" + templates.AttachedFile
	for _, s := range c.sources {
		for filepath.Dir(s.Path) == filepath.Clean(c.folder) && filepath.Base(s.Path) >= name {
			name = "z" + name
		}
	}
	return filepath.Join(c.folder, name)
}

// textLines turns rendered text into lines to add.
func textLines(text string) (lines []attach.Line) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if comment, ok := strings.CutPrefix(line, "# "); ok {
			lines = append(lines, attach.Line{Why: comment})
		} else if line != "" {
			lines = append(lines, attach.Line{Text: line})
		}
	}
	return lines
}
