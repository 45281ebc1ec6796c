//go:build ignore

package policy

import (
	"math"
	"testing"
)

const draws = 60_000

// near fails unless got is within five standard deviations of a binomial
// count with chance share.
func near(t *testing.T, what string, got int, share float64) {
	t.Helper()
	mean := draws * share
	if sd := math.Sqrt(mean * (1 - share)); math.Abs(float64(got)-mean) > 5*sd {
		t.Errorf("%s: %d of %d, want %.0f ± %.0f", what, got, draws, mean, 5*sd)
	}
}

func TestRoundRobinTakesTurnsFromARandomStart(t *testing.T) {
	starts := map[string]int{}
	d := New((&testClock{}).tell, seeds())
	for range 200 {
		d.Apply(Config{})
		d.Apply(Config{Pools: []PoolConfig{{Name: "p", Policy: &RoundRobin{}, Replicas: replicas(4)}}})
		p := d.Pools()[0]
		first, _ := decide(p)
		starts[first.Server]++
		for s, n := range tally(p, 4*25-1, false) {
			if want := 25; n != want && !(s == first.Server && n == want-1) {
				t.Fatalf("replica %s had %d turns of 100", s, n)
			}
		}
	}
	if len(starts) != 4 {
		t.Errorf("200 pools started at %v", starts)
	}
}

func TestRoundRobinSpreadsUnequalTurns(t *testing.T) {
	p, _ := newTestPool(&RoundRobin{}, 3, func(c *PoolConfig) { c.Replicas[0].Weight = 3 })
	run := 0
	counts := map[string]int{}
	for range 500 {
		d, _ := decide(p)
		counts[d.Server]++
		if d.Server == "r0" {
			run++
		} else {
			run = 0
		}
		if run > 2 {
			t.Fatal("the heavy replica had more than two turns in a row")
		}
	}
	if counts["r0"] != 300 || counts["r1"] != 100 || counts["r2"] != 100 {
		t.Errorf("turns %v, want 300, 100, 100", counts)
	}
}

func TestRandomFollowsWeights(t *testing.T) {
	p, _ := newTestPool(Random{}, 4, func(c *PoolConfig) { c.Replicas[1].Weight = 5 })
	counts := tally(p, draws, true)
	near(t, "r0", counts["r0"], 1.0/8)
	near(t, "r1", counts["r1"], 5.0/8)
}

// Every pair of distinct candidates is equally likely: with loads that order
// the replicas strictly, the winner of a pair is its lower one, so replica i
// of n wins 2(n-1-i) / (n(n-1)) of all draws.
func TestPowerOfTwoDrawsUniformDistinctPairs(t *testing.T) {
	const n = 6
	p, _ := newTestPool(PowerOfTwo{}, n)
	for i, r := range p.replicas {
		r.inFlight = 10 * i
	}
	counts := tally(p, draws, true)
	for i, r := range p.replicas {
		near(t, r.name, counts[r.name], 2*float64(n-1-i)/(n*(n-1)))
	}
	if counts["r5"] != 0 {
		t.Error("the most loaded replica won against itself")
	}
}

func TestPowerOfTwoSpreadsTies(t *testing.T) {
	p, _ := newTestPool(PowerOfTwo{}, 5)
	for s, c := range tally(p, draws, true) {
		near(t, s, c, 1.0/5)
	}
}

func TestLeastRequestsIsExactAndSpreadsTies(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 5)
	for s, c := range tally(p, 1000, false) {
		if c != 200 {
			t.Errorf("%s holds %d of 1000 in a burst, want 200", s, c)
		}
	}
	p, _ = newTestPool(LeastRequests{}, 5)
	for s, c := range tally(p, draws, true) {
		near(t, "tie to "+s, c, 1.0/5)
	}
}

func TestLeastRequestsFollowsWeights(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 3, func(c *PoolConfig) { c.Replicas[2].Weight = 2 })
	counts := tally(p, 400, false)
	if counts["r2"] < 198 || counts["r2"] > 202 {
		t.Errorf("the replica of weight 2 of 4 holds %d of 400", counts["r2"])
	}
}

func TestLeastOrdersAllRanks(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 9)
	for i, r := range p.replicas {
		r.inFlight = (i * 5) % 9
	}
	d, _ := decide(p)
	if d.Server != "r0" || d.Fallbacks != [2]string{"r2", "r4"} {
		t.Errorf("order %s %v, want r0 [r2 r4]", d.Server, d.Fallbacks)
	}
}

func session2(t *testing.T, o SessionOptions) *Session {
	t.Helper()
	s, err := NewSession(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSessionSticksAndFallsBackInOrder(t *testing.T) {
	s := session2(t, SessionOptions{Fallbacks: 2})
	p, _ := newTestPool(s, 8)
	for n := range 200 {
		home, _ := decide(p, inSession(n))
		again, _ := decide(p, inSession(n))
		if home.Server != again.Server || home.Fallbacks != again.Fallbacks {
			t.Fatalf("session %d moved from %v to %v", n, home, again)
		}
		p.byName[home.Server].down = true
		p.refresh()
		next, _ := decide(p, inSession(n))
		if next.Server != home.Fallbacks[0] || next.Fallbacks[0] != home.Fallbacks[1] {
			t.Fatalf("session %d went to %v, its fallbacks were %v", n, next, home.Fallbacks)
		}
		p.byName[home.Server].down = false
		p.refresh()
	}
	if s.home != 400 || s.fallbacks[0] != 200 {
		t.Errorf("counted %d at home and %v at fallbacks, want 400 and 200", s.home, s.fallbacks)
	}
}

func TestSessionWithoutAnIDIsSpread(t *testing.T) {
	p, _ := newTestPool(session2(t, SessionOptions{Fallbacks: 2}), 4)
	for s, c := range tally(p, draws, true) {
		near(t, s, c, 1.0/4)
	}
}

func TestSessionLoadBound(t *testing.T) {
	p, _ := newTestPool(session2(t, SessionOptions{Fallbacks: 2, LoadBound: 1.25}), 4)
	for s, c := range tally(p, 1000, false, inSession(7)) {
		if c > 315 {
			t.Errorf("one session alone put %d of 1000 on %s, the bound is 1.25 times 250", c, s)
		}
	}
}

func TestSessionOptionsAreChecked(t *testing.T) {
	for _, o := range []SessionOptions{{Fallbacks: 3}, {Fallbacks: -1}, {LoadBound: 0.5}, {LoadBound: math.NaN()}} {
		if _, err := NewSession(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}
