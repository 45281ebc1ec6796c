package budget

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Agents that share refuse by the sum of all counts, whatever reports are lost, repeated or
// late, once one of each has come.
func TestAgentsShare(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 50 {
		agents := []*bench{newBench(t, perKey(10_000, 50_000)), newBench(t, perKey(10_000, 50_000)), newBench(t, perKey(10_000, 50_000))}
		pass := func(d time.Duration) {
			for _, a := range agents {
				a.now += d
			}
		}
		tell := func(lossy bool) {
			for i, from := range agents {
				reports := from.Reports(nil, 1000)
				for j, to := range agents {
					if i == j || lossy && r.IntN(3) == 0 {
						continue
					}
					to.Receive(fmt.Sprint(i), reports)
					if r.IntN(4) == 0 {
						to.Receive(fmt.Sprint(i), reports)
					}
				}
			}
		}
		for range 30 {
			agents[r.IntN(3)].passes(fmt.Sprint(r.IntN(3)), r.IntN(900))
			pass(time.Duration(r.IntN(3000)) * time.Millisecond)
			tell(true)
		}
		pass(republishAfter)
		tell(false)
		for key := range 3 {
			sum, seen := int64(0), [3]int64{}
			for i, a := range agents {
				c := a.Identify(fmt.Append(nil, key))
				acc := a.byKey[accountKey{markOf("a-key"), c.id}]
				sum += a.accounts[acc].used[Minute].sum
				if _, ok := a.byKey[accountKey{markOf("a-key"), c.id}]; ok {
					seen[i] = a.accounts[acc].total(Minute, a.now)
				}
			}
			if seen[0] != seen[1] || seen[1] != seen[2] {
				t.Fatalf("round %d, key %d: %v", round, key, seen)
			}
		}
	}
}

// What another agent has counted is refused here, leaves the window, and is bounded.
func TestHear(t *testing.T) {
	a, b := newBench(t, perKey(1000, 0)), newBench(t, perKey(1000, 0))
	a.passes("k", 900)
	reports := a.Reports(nil, 10)
	if len(reports) != 1 || len(a.Reports(nil, 10)) != 0 {
		t.Fatalf("%+v", reports)
	}
	b.Receive("a", reports)
	if _, v := b.charge("k", "m", 200); !v.Refused || v.Remaining != 100 || v.Retry < 55 || v.Retry > 63 {
		t.Errorf("%+v", v)
	}
	if !b.passes("k", 100) || !b.passes("other", 900) {
		t.Error("what is left does not pass")
	}
	b.now += 64 * time.Second
	if !b.passes("k", 1000) {
		t.Error("what an agent has counted that is gone stays")
	}
	b.now += 64 * time.Second
	b.Receive("a", []Report{{Limit: reports[0].Limit, ID: reports[0].ID, Used: [2]int64{-5, 1 << 62}}, {Limit: 1, ID: ID{1}, Used: [2]int64{5, 5}}})
	if !b.passes("k", 1000) || len(b.byKey) != 3 {
		t.Errorf("a number out of bounds, or a limit that is not here, counts: %d accounts", len(b.byKey))
	}
	c := perKey(1000, 0)
	c.MostAccounts = 100
	b.Apply(c)
	for i := range 5000 {
		b.Receive(fmt.Sprint(i), []Report{{Limit: reports[0].Limit, ID: ID{byte(i), byte(i >> 8), 1}, Used: [2]int64{5, 5}}})
	}
	if len(b.byKey) > 101 || len(b.agents) > mostAgents {
		t.Errorf("%d accounts, %d agents", len(b.byKey), len(b.agents))
	}
}

// The next life of an agent continues the counts, less the tokens that have left the
// windows meanwhile.
func TestRestore(t *testing.T) {
	old := newBench(t, perKey(1000, 3000))
	old.passes("k", 900)
	old.now += 30 * time.Second
	old.passes("k", 100)
	old.passes("other", 500)
	text := old.Snapshot(nil)

	b := newBench(t, perKey(1000, 3000))
	b.now = time.Second
	if err := b.Restore(text, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if b.passes("k", 1) || !b.passes("other", 500) {
		t.Error("what was counted is lost")
	}
	b.now += 25 * time.Second
	if !b.passes("k", 900) || b.passes("k", 1) {
		t.Error("it does not slide as before")
	}
	b.now += 2 * time.Minute
	if !b.passes("k", 1000) {
		t.Error("the minute is not over")
	}
	b.now += 2 * time.Minute
	if b.passes("k", 200) || !b.passes("k", 100) {
		t.Error("the day began anew")
	}
	late := newBench(t, perKey(1000, 3000))
	if err := late.Restore(text, 48*time.Hour); err != nil || !late.passes("k", 1000) {
		t.Error("what is two days old counts")
	}
	if err := late.Restore(text[:len(text)-1], 0); err == nil {
		t.Error("half a snapshot is read without an error")
	}
}

func FuzzRestore(f *testing.F) {
	old := newBench(f, perKey(1000, 3000))
	old.passes("k", 900)
	f.Add(old.Snapshot(nil), int64(time.Minute))
	f.Fuzz(func(t *testing.T, text []byte, age int64) {
		c := perKey(1000, 3000)
		c.MostAccounts = 100
		b := newBench(t, c)
		_ = b.Restore(slices.Clone(text), time.Duration(age))
		for i := range b.accounts {
			for w := range windows {
				if n := b.accounts[i].total(w, b.now); n < 0 || n > 100*mostTokens {
					t.Fatal(n)
				}
			}
		}
		b.passes("k", 10)
	})
}
