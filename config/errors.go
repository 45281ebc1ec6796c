package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Error is one refusal or warning, with its position in the file.
type Error struct {
	File      string // as given to Parse, or "environment"
	Line, Col int    // from 1; 0 when not known
	Path      string // the key, such as pools[chat].policy; empty for the file itself
	Msg       string
}

// Error is the line to print: file:line:col: path: message.
func (e Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
		if e.Col > 0 {
			fmt.Fprintf(&b, ":%d", e.Col)
		}
	}
	if e.Path != "" {
		b.WriteString(": " + e.Path)
	}
	b.WriteString(": " + e.Msg)
	return b.String()
}

// Errors is everything that is wrong with a file, in the order of its lines.
type Errors []Error

// Error is one line for each, without a newline at the end.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// sorted puts e in the order of the file and drops what is said twice.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Msg, b.Msg))
	})
	return slices.Compact(e)
}

// source is what a file's values are found by: its name and the position of
// each key that it sets. bad holds the paths whose value was refused already,
// so that its default is not judged as well.
type source struct {
	file string
	at   map[string]position
	bad  map[string]bool
}

func newSource(file string) *source {
	return &source{file: file, at: map[string]position{}, bad: map[string]bool{}}
}

type position struct{ line, col int }

// errorAt makes an Error at the position of path, or of the nearest key above
// it that the file has. A nil source knows no position.
func (s *source) errorAt(path, format string, args ...any) Error {
	e := Error{Path: path, Msg: fmt.Sprintf(format, args...)}
	if s == nil {
		return e
	}
	e.File = s.file
	for p := path; p != ""; p = above(p) {
		if at, ok := s.at[p]; ok {
			e.Line, e.Col = at.line, at.col
			break
		}
	}
	return e
}

// above is the path that path lies in, at last the empty one.
func above(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// in is the path of a map's entry.
func in(path, name string) string { return path + "[" + label(name) + "]" }

// label is a name of the file as refusals show it: one that would spoil the
// line is quoted, and a long one cut.
func label(name string) string {
	if len(name) > 80 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quote(name)
	}
	return name
}

// choices joins the valid choices as a sentence does: a, b or c.
func choices(names []string) string {
	const most = 32
	if len(names) > most {
		return fmt.Sprintf("%s or one of %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// nearest returns the choices that s is probably a slip or a part of, the likeliest
// first. It looks at short names and few of them only: what it costs is paid for
// each refusal.
func nearest(s string, names []string) (list []string) {
	const most, shown = 32, 3
	if len(s) == 0 || len(s) > most {
		return nil
	}
	far := map[string]int{}
	for _, name := range names[:min(len(names), most)] {
		if len(name) > most {
			continue
		}
		d := distance(s, name)
		switch {
		case d < 3 && d < len(name):
		case len(s) > 1 && slices.Contains(strings.Split(name, "_"), s):
			d = 3 // one of its words
		case len(s) > 2 && strings.HasPrefix(name, s), len(name) > 2 && strings.HasPrefix(s, name):
			d = 4
		default:
			continue
		}
		far[name] = d
		list = append(list, name)
	}
	slices.SortStableFunc(list, func(a, b string) int { return far[a] - far[b] })
	if len(list) > 0 && far[list[0]] < 3 {
		list = slices.DeleteFunc(list, func(name string) bool { return far[name] > far[list[0]] })
	}
	return list[:min(len(list), shown)]
}

// distance counts the single-byte edits between a and b; far apart lengths are
// not looked at further.
func distance(a, b string) int {
	if max(len(a), len(b))-min(len(a), len(b)) > 2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// quote shows a value of the file in a refusal, cut to a readable length.
func quote(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
