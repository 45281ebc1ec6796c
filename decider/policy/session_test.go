package policy

import (
	"math"
	"slices"
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// counters are the values of a policy's counters by name.
func counters(c decider.Counted) map[string]uint64 {
	values := map[string]uint64{}
	for _, x := range c.Counters(nil) {
		values[x.Name] = x.Value
	}
	return values
}

func TestSessionSticksAndFallsBackInOrder(t *testing.T) {
	s := must(NewSession(SessionOptions{Fallbacks: 2}))
	p := decidertest.New(s, 8)
	for n := range 200 {
		home, _ := p.Send(decidertest.InSession(n))
		again, _ := p.Send(decidertest.InSession(n))
		if home.Server != again.Server || home.Fallbacks != again.Fallbacks {
			t.Fatalf("session %d moved from %v to %v", n, home, again)
		}
		p.Drain(home.Server)
		next, _ := p.Send(decidertest.InSession(n))
		if next.Server != home.Fallbacks[0] || next.Fallbacks[0] != home.Fallbacks[1] {
			t.Fatalf("session %d went to %v, its fallbacks were %v", n, next, home.Fallbacks)
		}
		p.Undrain(home.Server)
	}
	got := counters(s)
	if got[`session_decisions_total{rank="home"}`] != 400 || got[`session_decisions_total{rank="fallback1"}`] != 200 {
		t.Errorf("counted %v, want 400 at home and 200 at the first fallback", got)
	}
}

// TestAgentsAgreeOnSessions: agents that say nothing to each other send a session to the same
// replica, with the same fallbacks, by the weights too; also where they list the replicas in
// another order.
func TestAgentsAgreeOnSessions(t *testing.T) {
	weighted := func(c *decider.PoolConfig) {
		for i := range c.Replicas {
			c.Replicas[i].Weight = 1 + i%3
		}
	}
	one := decidertest.New(must(NewSession(SessionOptions{Fallbacks: 2})), 9, weighted)
	other := decidertest.New(must(NewSession(SessionOptions{Fallbacks: 2})), 9, weighted, func(c *decider.PoolConfig) { slices.Reverse(c.Replicas) })
	other.Burst(100, decidertest.InSession(1)) // its load and its chances are others
	used := map[string]int{}
	for n := range 500 {
		a, _ := one.Send(decidertest.InSession(n))
		b, _ := other.Send(decidertest.InSession(n))
		if a.Server != b.Server || a.Fallbacks != b.Fallbacks {
			t.Fatalf("session %d: one sends it to %v, the other to %v", n, a, b)
		}
		used[a.Server]++
	}
	if len(used) != 9 {
		t.Errorf("%v", used)
	}
}

func TestSessionWithoutAnIDIsSpread(t *testing.T) {
	s := must(NewSession(SessionOptions{Fallbacks: 2}))
	p := decidertest.New(s, 4)
	p.CheckTies(t, draws)
	if n := counters(s)[`session_decisions_total{rank="no_session"}`]; n != draws {
		t.Errorf("counted %d, want %d", n, draws)
	}
}

func TestSessionLoadBound(t *testing.T) {
	s := must(NewSession(SessionOptions{Fallbacks: 2, LoadBound: 1.25}))
	p := decidertest.New(s, 4)
	for server, c := range p.Burst(1000, decidertest.InSession(7)) {
		if c > 315 {
			t.Errorf("one session alone put %d of 1000 on %s, the bound is 1.25 times 250", c, server)
		}
	}
	got := counters(s)
	if got[`session_decisions_total{rank="fallback2"}`] == 0 || got[`session_decisions_total{rank="other"}`] == 0 {
		t.Errorf("counted %v, want some beyond the first fallback", got)
	}
}

func TestSessionRebuildsItsTableOnChangesOnly(t *testing.T) {
	s := must(NewSession(SessionDefaults))
	p := decidertest.New(s, 4)
	before := counters(s)["session_table_rebuilds_total"]
	p.Drain("r0")
	p.Undrain("r0")
	if n := counters(s)["session_table_rebuilds_total"]; n != before {
		t.Errorf("%d tables after draining, %d before", n, before)
	}
	p.Discovered([]decider.ReplicaState{{Name: "r0", Up: true, Weight: 3}})
	if n := counters(s)["session_table_rebuilds_total"]; n != before+1 {
		t.Errorf("%d tables after a change of weight, want %d", n, before+1)
	}
}

func TestSessionOptionsAreChecked(t *testing.T) {
	for _, o := range []SessionOptions{{Fallbacks: 3}, {Fallbacks: -1}, {LoadBound: 0.5}, {LoadBound: math.NaN()}} {
		if _, err := NewSession(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}
