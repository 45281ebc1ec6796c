package attach

import (
	"fmt"
	"strings"
)

// context is how many unchanged lines surround a change in a diff.
const context = 3

// mostChanges bounds the search for the smallest difference. Beyond it the
// texts count as different in all lines between their common ends.
const mostChanges = 2000

// Diff returns the changes from before to after as a unified diff, which `patch -d / -p1`
// applies if path is absolute. It is empty for equal texts.
func Diff(path string, before, after []byte) string {
	a, b := splitLines(before), splitLines(after)
	steps := script(a, b)
	var out strings.Builder
	for i := 0; i < len(steps); {
		if steps[i].kind == ' ' {
			i++
			continue
		}
		// A hunk reaches to the last change that is followed by another within
		// twice the context.
		last := i
		for j := i; j < len(steps) && j-last <= 2*context; j++ {
			if steps[j].kind != ' ' {
				last = j
			}
		}
		from, to := max(0, i-context), min(len(steps), last+1+context)
		hunk(&out, steps[from:to])
		i = to
	}
	if out.Len() == 0 {
		return ""
	}
	return "--- " + path + "\n+++ " + path + "\n" + out.String()
}

// hunk writes one hunk.
func hunk(out *strings.Builder, steps []step) {
	var olds, news int
	for _, s := range steps {
		if s.kind != '+' {
			olds++
		}
		if s.kind != '-' {
			news++
		}
	}
	// The range of an empty side names the line before it.
	start := func(at, n int) int {
		if n == 0 {
			return at
		}
		return at + 1
	}
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", start(steps[0].a, olds), olds, start(steps[0].b, news), news)
	for _, s := range steps {
		out.WriteByte(s.kind)
		out.WriteString(s.line)
		if !strings.HasSuffix(s.line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// step is a line of a diff: ' ' in both texts, '-' in the first, '+' in the
// second. a and b are the lines before it in each text.
type step struct {
	kind byte
	line string
	a, b int
}

// script is the shortest list of steps from a to b.
func script(a, b []string) (steps []step) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		steps = append(steps, step{' ', a[head], head, head})
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	steps = append(steps, middle(a, b, head, len(a)-tail, len(b)-tail)...)
	for i := tail; i > 0; i-- {
		steps = append(steps, step{' ', a[len(a)-i], len(a) - i, len(b) - i})
	}
	return steps
}

// middle is Myers's algorithm on the lines from head to the ends.
func middle(a, b []string, head, endA, endB int) []step {
	x, y := a[head:endA], b[head:endB]
	n, m := len(x), len(y)
	limit := min(n+m, mostChanges)
	v := make([]int, 2*limit+3)
	var trace [][]int
	found := false
search:
	for d := 0; d <= limit; d++ {
		trace = append(trace, append([]int(nil), v[limit-d:limit+d+3]...))
		for k := -d; k <= d; k += 2 {
			i := 0
			if k == -d || k != d && v[limit+1+k-1] < v[limit+1+k+1] {
				i = v[limit+1+k+1]
			} else {
				i = v[limit+1+k-1] + 1
			}
			j := i - k
			for i < n && j < m && x[i] == y[j] {
				i, j = i+1, j+1
			}
			v[limit+1+k] = i
			if i >= n && j >= m {
				found = true
				break search
			}
		}
	}
	var back []step
	i, j := n, m
	for d := len(trace) - 1; found && d > 0; d-- {
		w := trace[d] // w[k+d+1] is the furthest on diagonal k before step d
		k := i - j
		previous := k - 1
		if k == -d || k != d && w[k-1+d+1] < w[k+1+d+1] {
			previous = k + 1
		}
		pi := w[previous+d+1]
		pj := pi - previous
		for i > pi && j > pj {
			i, j = i-1, j-1
			back = append(back, step{' ', x[i], head + i, head + j})
			if i == pi || j == pj {
				break
			}
		}
		if previous == k+1 {
			j--
			back = append(back, step{'+', y[j], head + i, head + j})
		} else {
			i--
			back = append(back, step{'-', x[i], head + i, head + j})
		}
	}
	for found && i > 0 {
		i, j = i-1, j-1
		back = append(back, step{' ', x[i], head + i, head + j})
	}
	if !found {
		for ; j > 0; j-- {
			back = append(back, step{'+', y[j-1], head + n, head + j - 1})
		}
		for ; i > 0; i-- {
			back = append(back, step{'-', x[i-1], head + i - 1, head})
		}
	}
	for l, r := 0, len(back)-1; l < r; l, r = l+1, r-1 {
		back[l], back[r] = back[r], back[l]
	}
	return back
}
