package haproxy

import (
	"strings"
	"testing"
)

// unconditional asks that the lines which are added to a section hold wherever the section
// does: a condition within it or behind it holds none of them.
func unconditional(t *testing.T, r *Result) {
	t.Helper()
	for _, c := range r.Changes[:r.Theirs] {
		depth, section := 0, 0 // of conditions, where the line is and where its section began
		for line := range strings.Lines(string(c.After)) {
			if strings.Contains(line, "# pointsman-attach") {
				if depth > section {
					t.Errorf("a line within a condition of %s: %s\n%s", c.Path, line, c.After)
					return
				}
				continue
			}
			switch w := strings.Fields(line); {
			case len(w) == 0:
			case w[0] == ".if":
				depth++
			case w[0] == ".endif":
				depth--
			case strings.TrimLeft(line, " \t") == line && w[0][0] != '.' && w[0][0] != '#':
				section = depth
			}
		}
	}
}
