package decider

import (
	"testing"
	"time"
)

// TestAutoscalerSeesAll: an autoscaler gets the same answer from every agent, whichever of
// them was asked; and a session that one has placed has its last replica for all.
func TestAutoscalerSeesAll(t *testing.T) {
	d, tapes, clock := newSharingPools(func(c *PoolConfig) { c.Filters = []Filter{keepSessions{}} })
	own, p := d[0].Pools()[0], d[1].Pools()[0]
	const sessions = 20
	var first, last string
	for i := range sessions {
		answer, id := decide(own, func(r *Request) { r.Input, r.Stream, r.Session, r.HasSession = 20_000, true, uint64(i), true })
		own.Connected(id, []byte(answer.Server))
		if i == 0 {
			first = answer.Server
		}
		last = answer.Server
		apply(d[1], tapes[0].take())
		clock.now += time.Second
	}
	a, b := own.Autoscale(), p.Autoscale()
	if a != b || b.QueueRequests == 0 || b.Demand == 0 || b.Recommended != 4 {
		t.Errorf("asked: %+v\nnot asked: %+v", a, b)
	}
	for session, want := range map[uint64]string{0: first, sessions - 1: last} {
		p.mu.Lock()
		replica := p.sessions.last(&Request{Session: session, HasSession: true})
		p.mu.Unlock()
		if replica == nil || replica.Name() != want {
			t.Errorf("session %d was last on %v, want %s", session, replica, want)
		}
	}
}
