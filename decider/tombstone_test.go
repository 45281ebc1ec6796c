package decider

import "testing"

// A stopped agent reads the feed's backlog and the questions that wait for it
// in no order: questions whose requests have ended hold nothing.
func TestEndedBeforeDecided(t *testing.T) {
	const n = 2000
	d := New(new(testClock).tell, seeds())
	d.Apply(Config{Pools: []PoolConfig{
		{Name: "a", Policy: Random{}, Replicas: replicas(2)},
		{Name: "b", Policy: Random{}, Replicas: replicas(2)},
	}})
	for i := range n {
		d.Finished(Outcome{ID: ID{1, byte(i), byte(i >> 8)}, End: Served})
	}
	for i := range n {
		p, r := d.Pools()[i%2], Request{ID: ID{1, byte(i), byte(i >> 8)}}
		var out Decision
		if p.Decide(&r, &out); out.Server != "" || out.Why != "client_gone" {
			t.Fatalf("request %d: decided for %q (%s)", i, out.Server, out.Why)
		}
	}
	for _, p := range d.Pools() {
		if s := p.Status(); s.Reservations != 0 {
			t.Errorf("pool %s holds %d reservations", p.Name(), s.Reservations)
		}
	}
}

// A question that is read after the proxy went on without the answer leaves the
// reservation with the replica that has the request.
func TestSentBeforeDecided(t *testing.T) {
	for name, opt := range map[string]func(*PoolConfig){"": func(*PoolConfig) {}, "admission": withAdmission(Admission{})} {
		p, _ := newTestPool(LeastRequests{}, 2, opt)
		id := newID()
		p.Connected(id, []byte("r1"))
		c := submit(p, func(r *Request) { r.ID = id })
		if c.d.Server != "" || c.d.Why != "client_gone" || c.held {
			t.Errorf("%s: decided again: %+v", name, c.d)
		}
		if s := p.Status(); s.Reservations != 1 || s.Stats.Replaced != 0 || p.byName["r1"].inFlight != 1 {
			t.Errorf("%s: %d reservations, %d replaced, %d on the replica that serves", name, s.Reservations, s.Stats.Replaced, p.byName["r1"].inFlight)
		}
		p.Finished(Outcome{ID: id, Server: []byte("r1")})
		if n := p.Status().Reservations; n != 0 {
			t.Errorf("%s: %d reservations at the end", name, n)
		}
	}
}
