package session

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestHeadersAnySpelling(t *testing.T) {
	h := NewHeaders([]string{"x-session-id", "X_User_Id"})
	for _, c := range []struct {
		block, want string
		ok          bool
	}{
		{"host: a\r\nX-Session-ID: abc\r\n\r\n", "abc", true},
		{"x_session-id:abc\n", "abc", true},
		{"X-SESSION_ID: \t abc \r\n", "abc", true},
		{"x-user-id: u\r\nx-session-id: s\r\n", "s", true},
		{"x-session-id: s\r\nx-user-id: u\r\n", "s", true},
		{"X_USER-id: u", "u", true},
		{"x-session-id:\r\n", "", true},
		{"x-session-idx: a\r\nx-session: b\r\n", "", false},
		{"", "", false},
		{"no colon at all", "", false},
	} {
		got, ok := h.Find([]byte(c.block))
		if string(got) != c.want || ok != c.ok {
			t.Errorf("Find(%q) = %q, %v; want %q, %v", c.block, got, ok, c.want, c.ok)
		}
	}
}

func TestHeadersEveryMixtureOfSeparatorsAndCase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z]{1,5}([-_][a-z0-9]{1,5}){0,3}`).Draw(t, "name")
		respelt := []byte(name)
		for i, c := range respelt {
			switch {
			case (c == '-' || c == '_') && rapid.Bool().Draw(t, "swap"):
				respelt[i] = '-' + '_' - c
			case rapid.Bool().Draw(t, "upper"):
				respelt[i] = strings.ToUpper(string(c))[0]
			}
		}
		got, ok := NewHeaders([]string{name}).Find([]byte("0: b\r\n" + string(respelt) + ": v\r\n"))
		if !ok || string(got) != "v" {
			t.Fatalf("%q not found as %q", name, respelt)
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add([]byte("x-session-id: a\r\n:\r\n::\n"))
	h := NewHeaders([]string{"x-session-id"})
	f.Fuzz(func(t *testing.T, block []byte) { h.Find(block) })
}

func members(n int) []Member {
	m := make([]Member, n)
	for i := range m {
		m[i] = Member{fmt.Sprintf("r%d", i), 1}
	}
	return m
}

func all(n int) []int {
	a := make([]int, n)
	for i := range a {
		a[i] = i
	}
	return a
}

const keys = 100_000

func key(i int) uint64 { return Key(fmt.Appendf(nil, "session-%d", i)) }

func TestTableIsFair(t *testing.T) {
	tab, among := NewTable(members(64)), all(64)
	counts := make([]int, 64)
	for i := range keys {
		r, before := tab.Rank(key(i), among, 3, nil)
		if len(r) != 3 || before != 0 || r[0] == r[1] || r[1] == r[2] || r[0] == r[2] {
			t.Fatalf("Rank = %v, before %d", r, before)
		}
		counts[r[0]]++
	}
	for i, c := range counts {
		// Binomial: the standard deviation of a count is about 39 at a mean of 1,562.
		if math.Abs(float64(c)-keys/64.0) > 5*math.Sqrt(keys/64.0) {
			t.Errorf("member %d is home to %d of %d sessions, want about %d", i, c, keys, keys/64)
		}
	}
}

func TestTableFollowsWeights(t *testing.T) {
	m := members(4)
	m[2].Weight = 5
	tab, among := NewTable(m), all(4)
	counts := make([]int, 4)
	for i := range keys {
		r, _ := tab.Rank(key(i), among, 1, nil)
		counts[r[0]]++
	}
	for i, c := range counts {
		want := keys * float64(m[i].Weight) / 8
		if math.Abs(float64(c)-want) > 5*math.Sqrt(want) {
			t.Errorf("member %d of weight %d has %d sessions, want about %.0f", i, m[i].Weight, c, want)
		}
	}
}

// Only the keys of a member that leaves move, and each goes to what was its
// first fallback; a member that joins takes keys only for itself.
func TestTableRemapsOnlyWhatItMust(t *testing.T) {
	const n = 16
	whole, without := NewTable(members(n)), NewTable(members(n-1))
	among, fewer := all(n), all(n-1)
	moved := 0
	for i := range keys {
		before, _ := whole.Rank(key(i), among, 2, nil)
		after, _ := without.Rank(key(i), fewer, 1, nil)
		gone, rank := whole.Rank(key(i), fewer, 1, nil)
		if after[0] != gone[0] {
			t.Fatalf("key %d: filtering gives %d, leaving gives %d", i, gone[0], after[0])
		}
		if before[0] != n-1 {
			if after[0] != before[0] || rank != 0 {
				t.Fatalf("key %d moved from %d to %d though its home stayed", i, before[0], after[0])
			}
			continue
		}
		moved++
		if after[0] != before[1] || rank != 1 {
			t.Fatalf("key %d went to %d (rank %d), its fallback was %d", i, after[0], rank, before[1])
		}
	}
	if want := keys / n; moved < want*9/10 || moved > want*11/10 {
		t.Errorf("%d of %d keys moved, want about %d", moved, keys, want)
	}
}

func TestRankBounds(t *testing.T) {
	tab := NewTable(members(3))
	if r, _ := tab.Rank(1, nil, 3, nil); len(r) != 0 {
		t.Errorf("no candidates gave %v", r)
	}
	if r, _ := tab.Rank(1, all(3), 9, nil); len(r) != 3 {
		t.Errorf("9 of 3 gave %v", r)
	}
	dst := make([]int, 0, 8)
	if a := testing.AllocsPerRun(100, func() { tab.Rank(7, []int{0, 2}, 3, dst) }); a != 0 {
		t.Errorf("Rank allocates %v times", a)
	}
}

func BenchmarkRank(b *testing.B) {
	for _, n := range []int{8, 64, 512, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab, among, dst := NewTable(members(n)), all(n), make([]int, 0, 4)
			b.ReportAllocs()
			for i := range b.N {
				tab.Rank(uint64(i)*0x9e3779b97f4a7c15, among, 3, dst)
			}
		})
	}
}
