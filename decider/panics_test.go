package decider

import (
	"testing"
	"time"

	"pointsman/decider/queue"
)

// rough panics in each of its methods, once the test sets it to.
type rough struct {
	LeastRequests
	on *bool
}

func (p rough) do() {
	if *p.on {
		panic("rough")
	}
}
func (p rough) Rank(r *Request, v *View, dst []int) []int {
	p.do()
	return p.LeastRequests.Rank(r, v, dst)
}
func (p rough) Reserved(*Request, int)           { p.do() }
func (p rough) FirstToken(*Request, int)         { p.do() }
func (p rough) Finished(*Request, int, Outcome)  { p.do() }
func (p rough) Members([]*Replica)               { p.do() }
func (p rough) Counters(dst []Counter) []Counter { p.do(); return dst }

type answered chan struct{}

func (a answered) Decided() { close(a) }

// A policy that panics costs requests their decisions, and nothing else: neither a
// goroutine nor a count.
func TestPanicsAreRecovered(t *testing.T) {
	on := false
	p, clock := newTestPool(rough{on: &on}, 2, func(c *PoolConfig) {
		c.Limit = 1
		c.Admission = &Admission{Hold: true, Bands: []queue.Band{{Name: "all", MaxRequests: 10, TTL: time.Minute}}}
	})
	d := New(clock.tell, seeds())
	d.pools.Store(&[]*Pool{p})
	var running [2]ID
	for i := range running {
		_, running[i] = decide(p)
	}
	var waiting []answered
	var decisions [4]Decision
	for i := range decisions {
		waiting = append(waiting, make(answered))
		r := &Request{ID: newID(), Pool: p, Input: 100, Output: -1}
		if !p.Submit(r, &decisions[i], waiting[i]) {
			t.Fatal("not held")
		}
	}
	on = true
	p.FirstToken(running[0], []byte("r0"))
	p.Discovered([]ReplicaState{{Name: "r0", Up: true, Weight: 1}, {Name: "r1", Up: true, Weight: 2}})
	p.Status()
	for _, id := range running {
		p.Finished(Outcome{ID: id, Server: []byte("r0")})
	}
	d.Dispatch()
	clock.now += time.Hour
	d.Sweep()
	d.Drain()
	for i, w := range waiting {
		select {
		case <-w:
		default:
			t.Errorf("request %d was forgotten", i)
		}
	}
	s := p.Status()
	if s.Reservations != 0 || s.Stats.PolicyPanics < 6 {
		t.Errorf("%d reservations, %d panics", s.Reservations, s.Stats.PolicyPanics)
	}
	if list := d.Panics(); len(list) != 1 || list[0].Text != "rough" || list[0].Total < 6 {
		t.Errorf("%+v", list)
	}
	on = false
	if d.Panics(); len(d.Panics()) != 0 {
		t.Error("a panic is reported twice")
	}
}
