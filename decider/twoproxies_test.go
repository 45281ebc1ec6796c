package decider

import (
	"testing"
	"time"
)

// What one process of a proxy has no more ends nothing that another one serves: a
// second proxy, or the one from before a reload.
func TestProxyIsBelievedOfItsOwnRequests(t *testing.T) {
	const reports, other, unknown = 7, 8, 0
	for name, report := range map[string]ReplicaState{
		"down and idle":      {Name: "r0", Weight: 1, Idle: true, Origin: reports},
		"down with none":     {Name: "r0", Weight: 1, Idle: true, Counted: true, Origin: reports},
		"up with none":       {Name: "r0", Up: true, Weight: 1, Counted: true, Origin: reports},
		"of an unknown one":  {Name: "r0", Weight: 1, Idle: true, Counted: true},
		"up, two of its own": {Name: "r0", Up: true, Weight: 1, Counted: true, Requests: 2, Origin: reports},
	} {
		p, clock := newTestPool(LeastRequests{}, 1)
		var ids [3][]ID
		for k, origin := range []uint64{reports, other, unknown} {
			for range 10 {
				_, id := decide(p, askedBy(origin))
				ids[k] = append(ids[k], id)
				p.FirstToken(id, []byte("r0"))
			}
		}
		for range 100 {
			clock.now += 100 * time.Millisecond
			p.Discovered([]ReplicaState{report})
		}
		left := func(k int) (n int) {
			for _, id := range ids[k] {
				if p.Holds(id) {
					n++
				}
			}
			return n
		}
		want := report.Requests
		if report.Origin != reports {
			want = 10
		}
		if left(0) != want || left(1) != 10 || left(2) != 10 {
			t.Errorf("%s: of 10 each, %d of its own are left, %d of another, %d of an unknown one; want %d, 10 and 10", name, left(0), left(1), left(2), want)
		}
		r := p.byName["r0"]
		if r.inFlight != left(0)+20 || p.Status().Reservations != r.inFlight {
			t.Errorf("%s: %d in flight", name, r.inFlight)
		}
	}
}

// An engine counts the requests of all proxies, whoever asked.
func TestEngineIsBelievedOfAllRequests(t *testing.T) {
	p, clock := newTestPool(LeastRequests{}, 1)
	for k := range uint64(12) {
		decide(p, askedBy(k%3))
	}
	for range 100 {
		clock.now += 100 * time.Millisecond
		p.Discovered([]ReplicaState{{Name: "r0", Up: true, Weight: 1, Counted: true, Requests: 1, Origin: 1}})
		p.Engine("r0").Signals(Signals{Running: 3, Waiting: 2})
	}
	if n := p.Status().Reservations; n != 5 {
		t.Errorf("%d reservations where the engine has 5 requests", n)
	}
}

// A process of the proxy that has ended takes its own requests with it.
func TestProxyProcessGone(t *testing.T) {
	p, clock := newTestPool(LeastRequests{}, 2)
	d := New(clock.tell, seeds())
	d.pools.Store(&[]*Pool{p})
	for k := range uint64(12) {
		decide(p, askedBy(k%3))
	}
	d.Gone(0)
	if n := p.Status().Reservations; n != 12 {
		t.Errorf("%d of 12 reservations are left", n)
	}
	d.Gone(2)
	if n := p.Status().Reservations; n != 8 {
		t.Errorf("%d of 12 reservations are left, want the 8 of others", n)
	}
	p.Discovered([]ReplicaState{{Name: "r0", Up: true, Weight: 1, Origin: 1}, {Name: "r1", Up: true, Weight: 1, Origin: 1}})
	if n := p.replicas[0].ofProxy + p.replicas[1].ofProxy; n != 4 {
		t.Errorf("%d reservations of the process that counts, want 4", n)
	}
	p.Discovered([]ReplicaState{{Name: "r0", Up: true, Weight: 1, Origin: 5}, {Name: "r1", Up: true, Weight: 1, Origin: 5}})
	if n := p.replicas[0].ofProxy + p.replicas[1].ofProxy; n != 0 {
		t.Errorf("%d reservations of the process after a reload, want none", n)
	}
}
