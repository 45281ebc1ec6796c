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
