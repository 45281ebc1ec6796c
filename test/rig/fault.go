package rig

import (
	"fmt"
	"net/http"
	"testing"
)

// Hit sends c until one has met the fault of the engine, and returns how many it
// sent.
func (s *Site) Hit(client *http.Client, c Call, bad *Engine, met func(Answer) bool) int {
	s.T.Helper()
	for n := range 50 {
		if met(c.Do(client, s.Front)) {
			return n + 1
		}
	}
	s.T.Fatalf("50 requests have not met %s", bad.Name)
	return 0
}

// Spared checks that up to n requests succeed elsewhere, as long as the agent has
// the replica in the state. It returns how many it sent, and whether any was sent
// while the state held: an ejection is short, and a busy machine may miss it.
func (s *Site) Spared(client *http.Client, replica, state string, n int) (sent int, seen bool) {
	s.T.Helper()
	before := s.Agent.Pool(Pool).Replica(replica)
	if before.State != state {
		return 0, false
	}
	for i := range n {
		by := s.Serve(client, 1)
		now := s.Agent.Pool(Pool).Replica(replica)
		if now.State != state {
			return i + 1, i > 0
		}
		if now.Chosen != before.Chosen || by[replica] != 0 {
			s.T.Errorf("%s: request %d by %v, %+v, before %+v", state, i, by, now, before)
		}
	}
	return n, true
}

// Fault sets how the engine fails from now on.
func Fault(t testing.TB, e *Engine, how string) {
	t.Helper()
	if a := (Call{Path: "/fake/fail", Body: []byte(how)}).Do(http.DefaultClient, e.Address); a.Err != nil || a.Status != 200 {
		t.Fatalf("fault: %v %s", a.Err, a.Body)
	}
}

// Recovers ends the faults of the engine.
func (e *Engine) Recovers(t testing.TB) {
	t.Helper()
	if a := (Call{Path: "/fake/reset"}).Do(http.DefaultClient, e.Address); a.Status != 200 {
		t.Fatal(fmt.Sprint(a.Status, a.Err))
	}
}
