package nginx

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"pointsman/attach"
)

// change replaces text[from:to] of a file. With line set it adds a line after the
// one in which from is, if nothing but a comment follows there.
type change struct {
	from, to int
	text     string
	why      string
	line     bool
}

// edits turns changes within lines into edits of lines.
func edits(text []byte, changes []change) []attach.Edit {
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.from, b.from) })
	var added, replaced []attach.Edit
	var group []change
	flush := func() {
		if len(group) > 0 {
			replaced = append(replaced, replace(text, group))
			group = nil
		}
	}
	for _, c := range changes {
		if c.line {
			rest, _, _ := bytes.Cut(text[c.from:], []byte("\n"))
			if t := bytes.TrimSpace(rest); len(t) == 0 || t[0] == '#' {
				added = append(added, attach.Edit{At: lineOf(text, c.from) + 1, New: []attach.Line{{Text: indentAfter(text, c.from) + c.text, Why: c.why}}})
				continue
			}
			c.text = " " + c.text
		}
		if len(group) > 0 && lineOf(text, c.from) > lineOf(text, group[len(group)-1].to) {
			flush()
		}
		group = append(group, c)
	}
	flush()
	return append(added, replaced...)
}

// replace is the edit of the lines that a group of changes touches.
func replace(text []byte, group []change) attach.Edit {
	first, last := lineOf(text, group[0].from), lineOf(text, group[len(group)-1].to)
	start := bytes.LastIndexByte(text[:group[0].from], '\n') + 1
	end := len(text)
	if i := bytes.IndexByte(text[group[len(group)-1].to:], '\n'); i >= 0 {
		end = group[len(group)-1].to + i
	}
	var b strings.Builder
	var why []string
	at := start
	for _, c := range group {
		b.Write(text[at:c.from])
		b.WriteString(c.text)
		at = c.to
		if c.why != "" && !slices.Contains(why, c.why) {
			why = append(why, c.why)
		}
	}
	b.Write(text[at:end])
	e := attach.Edit{At: first, Old: last - first + 1}
	for i, l := range strings.Split(b.String(), "\n") {
		line := attach.Line{Text: strings.TrimRight(l, " \t\r")}
		if i == 0 {
			line.Why = strings.Join(why, "; ")
		}
		if strings.TrimSpace(line.Text) != "" || i == 0 {
			e.New = append(e.New, line)
		}
	}
	return e
}

// lineOf is the number of the line in which an offset is.
func lineOf(text []byte, at int) int { return bytes.Count(text[:at], []byte("\n")) + 1 }

// indentAfter is the indent of the next line with text, or that of the line with
// four spaces more.
func indentAfter(text []byte, at int) string {
	_, rest, _ := bytes.Cut(text[at:], []byte("\n"))
	for line := range bytes.Lines(rest) {
		if t := bytes.TrimSpace(line); len(t) > 0 && t[0] != '}' {
			return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
		}
	}
	line := text[bytes.LastIndexByte(text[:at], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))]) + "    "
}
