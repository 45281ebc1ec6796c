package decider

import "testing"

// TestPlaced: what another agent sent counts as if it was decided here, once,
// until its outcome.
func TestPlaced(t *testing.T) {
	p, _ := newTestPool(nil, 2)
	r := Request{ID: newID(), Pool: p, Input: 100, Output: -1, Stream: true}
	for range 2 {
		r.Placed("r1")
	}
	other := Request{ID: newID(), Pool: p, Input: 1}
	other.Placed("r7")
	if n, c := p.Status().Reservations, p.byName["r1"]; n != 1 || c.inFlight != 1 || c.input != 100 || c.prefill.n != 1 {
		t.Errorf("%d reservations, %d in flight on r1 with %d tokens, %d in prefill", n, c.inFlight, c.input, c.prefill.n)
	}
	p.FirstToken(r.ID, []byte("r1"))
	if c := p.byName["r1"]; c.prefill.n != 0 || c.inFlight != 1 {
		t.Errorf("after the first token: %d in flight, %d in prefill", c.inFlight, c.prefill.n)
	}
	p.Finished(Outcome{ID: r.ID, Server: []byte("r1")})
	if n, c := p.Status().Reservations, p.byName["r1"]; n != 0 || c.inFlight != 0 || c.input != 0 {
		t.Errorf("after the end: %d reservations, %d in flight with %d tokens", n, c.inFlight, c.input)
	}
}
