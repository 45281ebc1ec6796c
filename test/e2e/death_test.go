package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestDeath kills, stops and restarts the agent under load, beginning with none
// at all. No request fails, the proxy balances by itself, and decisions come
// back by themselves.
func TestDeath(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, engines := replicas(t, r, 3, "least_requests")

		s.proxy.start() // the agent is absent
		load := startTraffic(t, s.front, 6)
		load.await(60)
		by := load.servers()
		for _, e := range engines {
			if by[e.name] == 0 {
				t.Errorf("%s has no share of what the proxy balances by itself: %v", e.name, by)
			}
		}
		s.agent.start()
		s.decides(30)

		s.agent.kill()
		load.await(100)
		s.agent.start() // where a killed agent left its socket
		s.decides(30)

		s.agent.signal(syscall.SIGSTOP)
		load.await(300)
		s.agent.signal(syscall.SIGCONT)
		s.decides(30)

		s.agent.signal(syscall.SIGTERM)
		<-s.agent.ended
		load.await(60)
		s.agent.start()
		s.decides(30)
		t.Logf("%d requests", load.stop())

		p := s.agent.settled(pool)
		if p.Outcomes["served"] < p.Decisions || p.ended() != p.Outcomes["served"] {
			t.Errorf("outcomes of %d decisions: %v", p.Decisions, p.Outcomes)
		}
		s.idle(p)
		s.untroubled()
	})
}

// TestStopped stops the agent by SIGSTOP for long enough that the proxy takes it
// out, with questions waiting in its sockets. When it wakes up, these must not
// leave reservations behind.
func TestStopped(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 3, "least_requests")
		s.start()
		load := startTraffic(t, s.front, 16)
		s.decides(50)
		s.agent.signal(syscall.SIGSTOP)
		load.await(600)
		s.agent.signal(syscall.SIGCONT)
		s.decides(50)
		load.stop()
		p := s.agent.settled(pool)
		for _, end := range []string{"failed", "refused", "timed_out", "died"} {
			if p.Outcomes[end] != 0 {
				t.Errorf("%d outcomes %s, want none", p.Outcomes[end], end)
			}
		}
		s.idle(p)
		s.untroubled()
	})
}

// TestReload reloads the proxy and the agent under load, with long streams that
// begin before and end after. No request fails, the agent learns the outcome of
// every one, and none is in flight at the end.
func TestReload(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, engines := replicas(t, r, 3, "least_requests")
		s.start()
		load := startTraffic(t, s.front, 6)
		s.decides(30)

		const long = 8
		var streams sync.WaitGroup
		client := newClient(long, false, false)
		for range long {
			streams.Go(func() {
				c := held()
				if err := c.check(c.do(client, s.front)); err != nil {
					t.Errorf("stream over a reload: %v", err)
				}
			})
		}
		eventually(t, 5*time.Second, "the long streams are in flight", func() (bool, string) {
			n := 0
			for _, e := range engines {
				n += e.holds()
			}
			return n == long, fmt.Sprint(n)
		})
		s.proxy.reload()
		load.await(60)
		s.edit("max_requests: 0", "max_requests: 500")
		s.reloadAgent()
		if p := s.agent.pool(pool); p.Reservations < long {
			t.Errorf("%d reservations after the agent's reload, want the %d long streams' at least", p.Reservations, long)
		}
		load.await(60)
		s.proxy.reload()
		load.await(60)
		n := load.stop() + long
		for _, e := range engines {
			e.release()
		}
		streams.Wait()

		p := s.agent.settled(pool)
		if p.Outcomes["served"] != n || p.ended() != n {
			t.Errorf("outcomes %v of %d requests", p.Outcomes, n)
		}
		if p.Decisions != n || p.FellOpen != 0 {
			t.Errorf("%d decisions, %d without one, for %d requests", p.Decisions, p.FellOpen, n)
		}
		for _, r := range p.Replicas {
			if r.Failed != 0 {
				t.Errorf("at the end: %+v", r)
			}
		}
		s.idle(p)
		s.untroubled()
	})
}

// TestRefusedReload breaks the configuration: SIGHUP then changes nothing.
func TestRefusedReload(t *testing.T) {
	onEach(t, newest(t), func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 3, "least_requests")
		s.start()
		s.edit("pools:", "polls:")
		s.agent.signal(syscall.SIGHUP)
		eventually(t, 5*time.Second, "the reload is refused by name", func() (bool, string) {
			log := s.agent.log.String()
			return strings.Contains(log, "reload refused") && strings.Contains(log, `\"polls\"`), log
		})
		s.serve(http.DefaultClient, 10)
		if p := s.agent.settled(pool); p.Decisions != 10 {
			t.Errorf("%d decisions, want 10", p.Decisions)
		}
	})
}

// TestProxyCrash ends what serves requests in the proxy: it logs nothing, and
// the leases end what was reserved.
func TestProxyCrash(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 2, "least_requests", "lease: 1s")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		var broken sync.WaitGroup
		for range 4 {
			broken.Go(func() {
				if a := held().do(client, s.front); a.err == nil {
					t.Errorf("a request survived its proxy: %d", a.status)
				}
			})
		}
		s.awaitReservations(4)
		s.proxy.crash()
		broken.Wait()
		p := s.agent.settled(pool)
		s.idle(p)
		if n := s.count("reservations_expired_total"); n != 4 || p.ended() != 0 {
			t.Errorf("%d expired, outcomes %v", n, p.Outcomes)
		}
		s.proxy.awaitAgent()
		s.serve(client, 10)
		if p := s.agent.settled(pool); p.Outcomes["served"] != 10 || p.ended() != 10 || p.FellOpen != 0 {
			t.Errorf("after the crash: %+v", p)
		}
		s.untroubled("pointsman_reservations_expired_total")
	})
}
