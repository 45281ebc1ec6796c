package haproxy

import (
	"regexp"
	"slices"
	"strings"
)

// File is one file of a configuration.
type File struct {
	Name string
	Text []byte
}

// rule is a statement with its file.
type rule struct {
	Statement
	file string
}

// Section is one section of a configuration.
type Section = section

type section struct {
	kind, name string
	lines      []rule // the first is the section's own
	defaults   *section
	file       int      // index of its file
	end        int      // the last line that is surely the section's
	conditions [][2]int // the lines of each .if in it and its .endif, the outermost only
}

// Kind and Name are those of the section's first line; the name may be empty.
func (s *section) Kind() string { return s.kind }

// Name is the section's name.
func (s *section) Name() string { return s.name }

// File is the index of its file.
func (s *section) File() int { return s.file }

// Defaults are those that apply to it, nil for none.
func (s *section) Defaults() *Section { return s.defaults }

// End is the last statement of the section that applies whatever conditions surround it:
// lines may be added behind it.
func (s *section) End() int { return s.end }

// Condition returns the lines of the outermost .if and .endif in the section around a line:
// statements between them may not apply. For any other line it returns the line twice.
func (s *section) Condition(line int) (from, to int) {
	for _, c := range s.conditions {
		if c[0] <= line && line <= c[1] {
			return c[0], c[1]
		}
	}
	return line, line
}

// Statements are its lines, the first of which is its own.
func (s *section) Statements() (list []Statement) {
	for i := range s.lines {
		list = append(list, s.lines[i].Statement)
	}
	return list
}

// title is the section as messages name it.
func (s *section) title() string { return strings.TrimSpace(s.kind + " " + s.name) }

// Divide reads files in their order, as HAProxy does.
func Divide(files []File) []*Section { return divide(files) }

func divide(files []File) (list []*section) {
	var defaults *section
	named := map[string]*section{}
	for file, f := range files {
		var at *section
		depth, closed := 0, false
		for _, s := range ParseConfig(f.Text) {
			if s.Words[0] == s.Section {
				at = &section{kind: s.Section, name: s.Name, defaults: defaults, file: file}
				depth, closed = 0, false
				if at.kind == "defaults" {
					at.defaults = nil
				}
				if i := slices.Index(s.Words, "from"); i > 0 && i+1 < len(s.Words) {
					at.defaults = named[s.Words[i+1]]
					if i == 1 {
						at.name = ""
					}
				}
				if at.kind == "defaults" {
					defaults, named[at.name] = at, at
				}
				list = append(list, at)
			}
			if at == nil {
				continue
			}
			// Lines after a condition that began before the section may not belong to it.
			switch s.Words[0] {
			case ".if":
				if depth++; depth == 1 && !closed {
					at.conditions = append(at.conditions, [2]int{s.Line, s.Line})
				}
			case ".else", ".elif", ".endif":
				closed = closed || depth == 0
				if s.Words[0] == ".endif" {
					depth--
				}
			}
			switch last := len(at.conditions) - 1; {
			case closed:
			case depth > 0:
				at.conditions[last][1] = s.Line // so far
			case s.Words[0] == ".endif":
				at.conditions[last][1] = s.Line
				fallthrough
			default:
				at.end = s.Line
			}
			at.lines = append(at.lines, rule{s, f.Name})
		}
	}
	return list
}

// receives and balances say what a section can be: listen is both.
func (s *section) receives() bool { return s.kind == "frontend" || s.kind == "listen" }
func (s *section) balances() bool { return s.kind == "backend" || s.kind == "listen" }

// own returns the section's lines that begin with the words.
func (s *section) own(words ...string) (list []*rule) {
	for i := range s.lines {
		if s.lines[i].Is(words...) {
			list = append(list, &s.lines[i])
		}
	}
	return list
}

// last returns the last line that begins with the words, of the section or else
// of its defaults; nil if there is none.
func (s *section) last(words ...string) *rule {
	for ; s != nil; s = s.defaults {
		if l := s.own(words...); len(l) > 0 {
			return l[len(l)-1]
		}
	}
	return nil
}

// option reports whether an option is on.
func (s *section) option(name string) bool {
	for ; s != nil; s = s.defaults {
		for i := len(s.lines) - 1; i >= 0; i-- {
			l := &s.lines[i]
			if l.Is("option", name) {
				return true
			}
			if l.Is("no", "option", name) {
				return false
			}
		}
	}
	return false
}

// mode is the section's mode.
func (s *section) mode() string {
	if l := s.last("mode"); l != nil {
		return l.Arg(1)
	}
	return "tcp"
}

// logs are the log lines that apply: those of the defaults, then its own; "no
// log" drops those before it. "log global" stands for global's.
func (s *section) logs(global []*rule) (list []*rule) {
	if s.defaults != nil {
		list = s.defaults.logs(global)
	}
	for i := range s.lines {
		switch l := &s.lines[i]; {
		case l.Is("no", "log"):
			list = nil
		case l.Is("log", "global"):
			list = append(list, global...)
		case l.Is("log"):
			list = append(list, l)
		}
	}
	return list
}

// servers are the addresses of the section's servers, with their lines.
func (s *section) servers() map[string]*rule {
	list := map[string]*rule{}
	for _, l := range s.own("server") {
		list[l.Arg(2)] = l
	}
	return list
}

// reuses reports whether the section keeps connections to its servers as we render it:
// requests that cannot be sent again get a new connection.
func (s *section) reuses() bool {
	l := s.last("retry-on")
	if l == nil || !slices.Contains(l.Words, "empty-response") {
		return false
	}
	if slices.ContainsFunc(s.own("default-server"), func(l *rule) bool { return strings.Contains(l.Text(), "var(txn.pm.conn)") }) {
		return true
	}
	for _, server := range s.servers() {
		if !strings.Contains(server.Text(), "var(txn.pm.conn)") {
			return false
		}
	}
	return true
}

// condition is the text of a rule's condition, with the ACLs that it names; ""
// if it has none. word is where it may begin.
func (s *section) condition(l *rule, word int) string {
	i := slices.IndexFunc(l.Words, func(w string) bool { return w == "if" || w == "unless" })
	if i < word {
		return ""
	}
	text := strings.Join(l.Words[i:], " ")
	for _, w := range l.Words[i+1:] {
		for _, a := range s.own("acl", strings.TrimPrefix(w, "!")) {
			text += " " + strings.Join(a.Words[2:], " ")
		}
	}
	return text
}

// llmPath finds in a condition the paths of requests that engines serve.
var llmPath = regexp.MustCompile(`(^|[^\w/])\^?/v1/?($|[\s"'*.()}])|/v1/(chat|completions|embeddings|responses|messages)\b|/generate\b|/chat/completions\b`)

// llmName and llmPort recognise backends of engines.
var (
	llmName = regexp.MustCompile(`(?i)llm|sglang|llama|\bgpt|openai|mistral|mixtral|qwen|gemma|deepseek|inference|genai`)
	llmPort = regexp.MustCompile(`:(8000|30000|11434)$`)
)

// routes are the rules of a section that lead to a backend, its own and those of
// its defaults.
func (s *section) routes() (list []*rule) {
	list = s.own("use_backend")
	if l := s.last("default_backend"); l != nil {
		list = append(list, l)
	}
	return list
}
