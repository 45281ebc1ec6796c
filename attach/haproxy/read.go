package haproxy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pointsman/attach"
	hap "pointsman/haproxy"
)

// source is one file of the user's configuration.
type source struct {
	attach.Change
	plain []byte   // without the lines of an earlier attach
	lines []string // of plain, without their ends
}

// section is one section of the configuration.
type section struct {
	kind, name string
	file       int // index of the source
	last       int // the last statement; lines are added after it
	statements []hap.Statement
	enclosing  func(line int) (from, to int) // the condition around a line
	parent     *section                      // the defaults that apply, nil for none
}

// configuration is everything that HAProxy reads.
type configuration struct {
	sources  []*source
	sections []*section
	folder   string // the last of the given paths, if it is a folder
	own      string // the file in that folder that holds sections of ours only
}

// read reads files and folders as HAProxy's -f takes them.
func read(paths []string) (*configuration, error) {
	c := &configuration{}
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("%w: name your configuration by --haproxy-config", err)
		}
		files := []string{path}
		if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "[^.]*.cfg")); err != nil {
				return nil, err
			}
			slices.Sort(files)
			if i == len(paths)-1 {
				c.folder = path
			}
		}
		for _, f := range files {
			change, err := attach.Read(f)
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(string(change.Before), ownHead) {
				c.own = f
				continue
			}
			s := &source{Change: change, plain: attach.Strip(change.Before)}
			for line := range strings.Lines(string(s.plain)) {
				s.lines = append(s.lines, strings.TrimRight(line, "\r\n"))
			}
			c.sources = append(c.sources, s)
		}
	}
	if len(c.sources) == 0 {
		return nil, fmt.Errorf("%s: no .cfg file in it", strings.Join(paths, ", "))
	}
	c.parse()
	return c, nil
}

// parse divides the sources into sections.
func (c *configuration) parse() {
	var files []hap.File
	for _, src := range c.sources {
		files = append(files, hap.File{Name: src.Path, Text: src.plain})
	}
	of := map[*hap.Section]*section{}
	for _, s := range hap.Divide(files) {
		of[s] = &section{kind: s.Kind(), name: s.Name(), file: s.File(), last: s.End(), statements: s.Statements(), enclosing: s.Condition, parent: of[s.Defaults()]}
		c.sections = append(c.sections, of[s])
	}
}

// end is the line before which to add the last lines of the section.
func (s *section) end() int { return s.last + 1 }

// own returns the last statement of the section that matches, or nil.
func (s *section) own(match func(*hap.Statement) bool) *hap.Statement {
	for i := len(s.statements) - 1; i >= 0; i-- {
		if match(&s.statements[i]) {
			return &s.statements[i]
		}
	}
	return nil
}

// find is own, or else the statement of the defaults that applies, with its section.
func (s *section) find(match func(*hap.Statement) bool) (*hap.Statement, *section) {
	for ; s != nil; s = s.parent {
		if found := s.own(match); found != nil {
			return found, s
		}
	}
	return nil, nil
}

// begins matches statements that begin with the words.
func begins(words ...string) func(*hap.Statement) bool {
	return func(s *hap.Statement) bool { return s.Is(words...) }
}

// option reports whether an option is on.
func (s *section) option(name string) bool {
	found, _ := s.find(func(s *hap.Statement) bool { return s.Is("option", name) || s.Is("no", "option", name) })
	return found != nil && found.Words[0] == "option"
}

// http reports whether the section is in HTTP mode.
func (s *section) http() bool {
	mode, _ := s.find(begins("mode"))
	return mode != nil && mode.Arg(1) == "http"
}

// receives and balances report what a section can be: listen is both.
func (s *section) receives() bool { return s.kind == "frontend" || s.kind == "listen" }
func (s *section) balances() bool { return s.kind == "backend" || s.kind == "listen" }

// backend returns the section of a backend's name, or nil.
func (c *configuration) backend(name string) *section {
	for _, s := range c.sections {
		if s.balances() && s.name == name {
			return s
		}
	}
	return nil
}

// routes are the statements of a frontend that may lead to a backend.
func (s *section) routes(backend string) (found []*hap.Statement) {
	for i := range s.statements {
		r := &s.statements[i]
		if !r.Is("use_backend") && !r.Is("default_backend") {
			continue
		}
		if to := r.Arg(1); to == backend || strings.Contains(to, "%[") {
			found = append(found, r)
		}
	}
	if own, inherited := s.find(begins("default_backend")); own != nil && inherited != s && own.Arg(1) == backend {
		found = append(found, own)
	}
	return found
}

// frontends lead, or may lead, to a backend.
func (c *configuration) frontends(b *section) (found []*section) {
	for _, s := range c.sections {
		if s.receives() && s.http() && (s == b || len(s.routes(b.name)) > 0) {
			found = append(found, s)
		}
	}
	return found
}

// where names a line of the user's own file.
func (c *configuration) where(s *section, line int) string {
	return fmt.Sprintf("%s:%d", c.sources[s.file].Path, line)
}

// indent is the indentation of the section's lines.
func (c *configuration) indent(s *section) string {
	for i := range s.statements {
		line := c.sources[s.file].lines[s.statements[i].Line-1]
		if blank := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; i > 0 && blank != "" {
			return blank
		}
	}
	return "    "
}
