package attach

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// mark begins the comment at the end of each line that is added, and kept
// begins a line that was replaced. Both proxies read them as comments.
const (
	mark = "# pointsman-attach"
	kept = mark + " keeps: "
)

// Line is a line to add.
type Line struct {
	Text string // with its indent, without a line end; only the indent for a comment line
	Why  string // the comment at its end
}

// Edit adds lines to a file, in the place of others or before one.
type Edit struct {
	At  int // the first line replaced, or the line before which to insert; from 1, the number of lines plus 1 appends
	Old int // how many lines are replaced; 0 inserts
	New []Line
}

// Apply makes the edits in a text without earlier edits (see Strip). Edits at
// the same line take effect in the given order, insertions first. Line ends are kept as they are:
// CRLF, and a last line without any.
func Apply(text []byte, edits []Edit) ([]byte, error) {
	lines := splitLines(text)
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b Edit) int { return cmp.Or(a.At-b.At, min(a.Old, 1)-min(b.Old, 1)) })
	var out []string
	next, end := 0, "\n" // the first line not yet copied, and the line end in use
	for _, l := range lines {
		if e := lineEnd(l); e != "" {
			end = e
			break
		}
	}
	for _, e := range edits {
		from := e.At - 1
		if from < next || e.Old < 0 || from+e.Old > len(lines) {
			return nil, fmt.Errorf("edit at line %d of %d overlaps another or lies outside", e.At, len(lines))
		}
		out = append(out, lines[next:from]...)
		if from > 0 {
			if ended := lineEnd(lines[from-1]); ended != "" {
				end = ended
			}
		}
		for _, l := range lines[from : from+e.Old] {
			out = append(out, kept+l)
		}
		for _, l := range e.New {
			if strings.ContainsAny(l.Text+l.Why, "\r\n") {
				return nil, fmt.Errorf("edit at line %d: a line end within the line %q", e.At, l.Text)
			}
			out = append(out, l.marked()+end)
		}
		next = from + e.Old
	}
	out = append(out, lines[next:]...)
	return join(out, end, len(lines) > 0 && lineEnd(lines[len(lines)-1]) == ""), nil
}

// marked is the line with its mark.
func (l Line) marked() string {
	text := l.Text
	if strings.TrimSpace(text) != "" {
		text += " "
	}
	if l.Why == "" {
		return text + mark
	}
	return text + mark + ": " + l.Why
}

// join joins lines. Each has a line end, except for the last one if open is set.
func join(lines []string, end string, open bool) []byte {
	var b bytes.Buffer
	for i, l := range lines {
		bare := l[:len(l)-len(lineEnd(l))]
		switch {
		case i == len(lines)-1 && open:
			b.WriteString(bare)
		case bare == l:
			b.WriteString(l + end)
		default:
			b.WriteString(l)
		}
	}
	return b.Bytes()
}

// Strip undoes all edits: it removes the added lines and restores those that
// they replaced.
func Strip(text []byte) []byte {
	lines := splitLines(text)
	var out []string
	for _, l := range lines {
		switch {
		case strings.HasPrefix(l, kept):
			out = append(out, l[len(kept):])
		case !added(l):
			out = append(out, l)
		}
	}
	return join(out, "\n", len(lines) > 0 && lineEnd(lines[len(lines)-1]) == "")
}

// Attached reports whether the text has edits of ours.
func Attached(text []byte) bool {
	return slices.ContainsFunc(splitLines(text), func(l string) bool { return strings.HasPrefix(l, kept) || added(l) })
}

// added reports whether a line was added by Apply.
func added(line string) bool {
	line = strings.TrimLeft(line[:len(line)-len(lineEnd(line))], " \t")
	return line == mark || strings.HasSuffix(line, " "+mark) || strings.HasPrefix(line, mark+": ") || strings.Contains(line, " "+mark+": ")
}

// splitLines splits a text into lines with their ends.
func splitLines(text []byte) []string {
	return slices.Collect(strings.Lines(string(text)))
}

// lineEnd is the end of a line: LF, CRLF, or nothing at the end of a file.
func lineEnd(line string) string {
	switch {
	case strings.HasSuffix(line, "\r\n"):
		return "\r\n"
	case strings.HasSuffix(line, "\n"):
		return "\n"
	}
	return ""
}
