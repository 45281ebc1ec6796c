package decider

import "testing"

func TestRecordsOutliveTheirMembers(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 0, func(c *PoolConfig) { c.Discover = true })
	up := func(names ...string) {
		var states []ReplicaState
		for _, n := range names {
			states = append(states, ReplicaState{Name: n, Up: true, Weight: 1})
		}
		p.Discovered(states)
	}
	considered := func(r Record) (names string, inFlight int) {
		for _, c := range r.Considered {
			names += c.Replica
			inFlight += c.InFlight
			if (c.Rank == 1) != (c.Replica == r.Server) {
				t.Errorf("%s has rank %d, %s was chosen", c.Replica, c.Rank, r.Server)
			}
		}
		return names, inFlight
	}

	up("a", "b")
	decide(p)
	decide(p)
	up("c", "b") // c has the place and the slot of a
	decide(p)
	up("b", "d", "c")
	decide(p)
	for i, want := range []struct {
		names    string
		inFlight int
	}{{"bdc", 2}, {"cb", 1}, {"ab", 1}, {"ab", 0}} {
		if names, n := considered(p.Records()[i]); names != want.names || n != want.inFlight {
			t.Errorf("%d decisions ago there were %s with %d in flight, recorded are %s with %d", i, want.names, want.inFlight, names, n)
		}
	}
}

func TestRecordsAreBounded(t *testing.T) {
	p, _ := newTestPool(PowerOfTwo{}, 300)
	for range 3 * recordsKept {
		decide(p)
	}
	list := p.Records()
	if len(list) != recordsKept || list[0].Seq != 3*recordsKept {
		t.Fatalf("%d records, the last of them number %d", len(list), list[0].Seq)
	}
	for _, r := range list {
		if len(r.Considered) != recordedPicks+recordedOthers || r.Candidates != 300 {
			t.Fatalf("%d of %d candidates", len(r.Considered), r.Candidates)
		}
	}
}
