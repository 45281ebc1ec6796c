package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestBothProxies serves an HAProxy and an nginx with one agent. Both see the
// same replicas: what one of them learns holds for the other.
func TestBothProxies(t *testing.T) {
	others := haproxies(t)
	for i, r := range nginxes(t) {
		other := others[min(i, len(others)-1)]
		t.Run(r.name+"+"+other.name, func(t *testing.T) {
			t.Parallel()
			n, engines := replicas(t, r, 3, "round_robin")
			h := newFront(t, other, n.dir)
			h.agent, h.feed = n.agent, n.feed
			n.edit("spoe: off", h.proxy.listen())
			n.edit("pools:", h.proxy.section()+"\npools:")
			n.start()
			h.proxy.start()
			h.proxy.awaitAgent()
			byNginx, byHAProxy := startTraffic(t, n.front, 4), startTraffic(t, h.front, 4)
			byNginx.await(100)
			byHAProxy.await(100)

			// What HAProxy's checks and its runtime API say holds for nginx too.
			client := newClient(2, true, false)
			defer client.CloseIdleConnections()
			h.haproxy().state("r1", "drain")
			h.awaitState("r1", 5*time.Second, "draining")
			total := byNginx.stop() + byHAProxy.stop()
			if by := n.serve(client, 10); by["r1"] != 0 {
				t.Errorf("drained at HAProxy, nginx sent it %d of 10", by["r1"])
			}
			h.haproxy().state("r1", "ready")
			h.awaitState("r1", 5*time.Second, "up")
			// And what nginx meets holds for HAProxy, for as long as it lasts.
			sent := 10
			for try := 1; ; try++ {
				if try > attempts {
					t.Fatal("the ejection was never seen")
				}
				fault(t, engines[1], `{"die_after":3,"count":1}`)
				sent += n.hit(client, small(true), engines[1], func(a answer) bool { return a.err != nil })
				eventually(t, 5*time.Second, "the failure is counted", func() (bool, string) {
					p := n.agent.pool(pool)
					return p.Outcomes["died"] == try, fmt.Sprint(p)
				})
				more, seen := h.spared(client, "r2", ejected, 6)
				if sent += more; seen {
					break
				}
			}
			p := n.agent.settled(pool)
			n.idle(p)
			if want := total + sent; p.Decisions != want || p.ended() != want {
				t.Errorf("%d requests: %d decisions, outcomes %v", want, p.Decisions, p.Outcomes)
			}
			n.untroubled()
			h.untroubled()
		})
	}
}

// hit sends c until one has met the fault of the engine, and returns how many it
// sent.
func (s *site) hit(client *http.Client, c call, bad *engine, met func(answer) bool) int {
	s.t.Helper()
	for n := range 50 {
		if met(c.do(client, s.front)) {
			return n + 1
		}
	}
	s.t.Fatalf("50 requests have not met %s", bad.name)
	return 0
}

// spared checks that up to n requests succeed elsewhere, as long as the agent has
// the replica in the state. It returns how many it sent, and whether any was sent
// while the state held: an ejection is short, and a busy machine may miss it.
func (s *site) spared(client *http.Client, replica, state string, n int) (sent int, seen bool) {
	s.t.Helper()
	before := s.agent.pool(pool).replica(replica)
	if before.State != state {
		return 0, false
	}
	for i := range n {
		by := s.serve(client, 1)
		now := s.agent.pool(pool).replica(replica)
		if now.State != state {
			return i + 1, i > 0
		}
		if now.Chosen != before.Chosen || by[replica] != 0 {
			s.t.Errorf("%s: request %d by %v, %+v, before %+v", state, i, by, now, before)
		}
	}
	return n, true
}

// attempts is how often a test tries to see what may be over before it looks.
const attempts = 10

// fault sets how the engine fails from now on.
func fault(t testing.TB, e *engine, how string) {
	t.Helper()
	if a := (call{path: "/fake/fail", body: []byte(how)}).do(http.DefaultClient, e.address); a.err != nil || a.status != 200 {
		t.Fatalf("fault: %v %s", a.err, a.body)
	}
}

// recovers ends the faults of the engine.
func (e *engine) recovers(t testing.TB) {
	t.Helper()
	if a := (call{path: "/fake/reset"}).do(http.DefaultClient, e.address); a.status != 200 {
		t.Fatal(fmt.Sprint(a.status, a.err))
	}
}
