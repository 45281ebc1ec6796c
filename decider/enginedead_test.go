package decider_test

import (
	"testing"
	"time"

	"pointsman/decider/decidertest"
	"pointsman/decider/policy"
)

// A replica whose engine says that it is dead gets no requests, though those that it
// had seem to succeed, unless there is no other. It is back as soon as it says so, or
// says nothing for long.
func TestDeadEngine(t *testing.T) {
	p := decidertest.New(&policy.RoundRobin{}, 3)
	d, id := p.Send()
	dead := d.Server
	p.Engine(dead).Dead(3 * time.Second)
	p.End(id, dead) // a stream that ended with an error event
	shares := func() (n int) {
		for range 6 {
			d, id := p.Send()
			if p.End(id, d.Server); d.Server == dead {
				n++
			}
		}
		return n
	}
	if n := shares(); n != 0 {
		t.Errorf("%d of 6 requests went to a dead engine", n)
	}
	for _, r := range p.Status().Replicas {
		if state := r.State; (r.Name == dead) != (state == "ejected") {
			t.Errorf("%s is %s", r.Name, state)
		}
	}
	p.Engine(dead).Alive()
	if shares() == 0 {
		t.Error("an engine that is alive again gets nothing")
	}
	p.Engine(dead).Dead(3 * time.Second)
	p.Clock.Advance(4 * time.Second)
	if shares() == 0 {
		t.Error("an engine that nobody asked again is out for ever")
	}
	for _, r := range []string{"r0", "r1", "r2"} {
		p.Engine(r).Dead(3 * time.Second)
	}
	if d, _ := p.Send(); d.Server == "" || d.Status != 0 {
		t.Errorf("with all engines dead: %+v", d)
	}
	p.Engine("nobody").Dead(time.Second)
	p.Engine("nobody").Alive()
}
