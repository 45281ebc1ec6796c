package templates

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestLimits: the parts of a frame fit, and the body gets most of it.
func TestLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bufsize := rapid.IntRange(minBufsize, maxBufsize).Draw(t, "bufsize")
		l := LimitsOf(bufsize)
		if l.MaxPath+l.MaxHeaders+l.MaxBody+frameOverhead > bufsize-4 || l.MaxBody < bufsize/2 || l.MaxHeaders < 4096 {
			t.Errorf("%d: %+v", bufsize, l)
		}
	})
}

// TestWord: HAProxy reads back what word wrote, and reads one word.
func TestWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[ -~]{1,40}`).Draw(t, "s")
		if got := unquote(word(s)); got != s {
			t.Errorf("%q is written %s and read %q", s, word(s), got)
		}
	})
}

// unquote reads a word as HAProxy's parser does: single quotes take everything
// as it is, a backslash takes the next byte, anything special ends the word.
func unquote(w string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(w); i++ {
		switch c := w[i]; {
		case c == '\'':
			quoted = !quoted
		case quoted:
			b.WriteByte(c)
		case c == '\\':
			i++
			b.WriteByte(w[i])
		case strings.IndexByte(" #\"$", c) >= 0:
			return "ended by " + string(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// TestMaxConn: a large installation is not held to the limit of a small one.
func TestMaxConn(t *testing.T) {
	pool := func(n, limit int) Pool {
		return Pool{Replicas: slices.Repeat([]Replica{{MaxConn: limit}}, n)}
	}
	for _, c := range []struct {
		pools   []Pool
		waiting int
		want    int
	}{
		{[]Pool{pool(2, 0)}, 0, 4000},
		{[]Pool{pool(2, 8)}, 1000, 5000},
		{[]Pool{pool(40, 0), pool(10, 100)}, 200, 2*(40*512+1000) + 200},
		{[]Pool{pool(0, 0)}, 0, 4000},
	} {
		v := &view{HAProxy: HAProxy{Pools: c.pools, Waiting: c.waiting}}
		if got := v.MaxConn(); got != c.want {
			t.Errorf("%d pools, %d may wait: %d, want %d", len(c.pools), c.waiting, got, c.want)
		}
	}
}
