package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestDeath kills, stops and restarts the agent under load, beginning with none
// at all. No request fails, the proxy balances by itself, and decisions come
// back by themselves.
func TestDeath(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 3, "least_requests")

		s.Proxy.Start() // the agent is absent
		load := rig.StartTraffic(t, s.Front, 6)
		load.Await(60)
		by := load.Servers()
		for _, e := range engines {
			if by[e.Name] == 0 {
				t.Errorf("%s has no share of what the proxy balances by itself: %v", e.Name, by)
			}
		}
		s.Agent.Start()
		s.Decides(30)

		s.Agent.Kill()
		load.Await(100)
		s.Agent.Start() // where a killed agent left its socket
		s.Decides(30)

		s.Agent.Signal(syscall.SIGSTOP)
		load.Await(300)
		s.Agent.Signal(syscall.SIGCONT)
		s.Decides(30)

		s.Agent.Signal(syscall.SIGTERM)
		<-s.Agent.Ended
		load.Await(60)
		s.Agent.Start()
		s.Decides(30)
		t.Logf("%d requests", load.Stop())

		p := s.Agent.Settled(rig.Pool)
		if p.Outcomes["served"] < p.Decisions || p.Ended() != p.Outcomes["served"] {
			t.Errorf("outcomes of %d decisions: %v", p.Decisions, p.Outcomes)
		}
		s.Idle(p)
		s.Untroubled()
	})
}

// TestStopped stops the agent by SIGSTOP for long enough that the proxy takes it
// out, with questions waiting in its sockets. When it wakes up, these must not
// leave reservations behind.
func TestStopped(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 3, "least_requests")
		s.Start()
		load := rig.StartTraffic(t, s.Front, 16)
		s.Decides(50)
		s.Agent.Signal(syscall.SIGSTOP)
		load.Await(600)
		s.Agent.Signal(syscall.SIGCONT)
		s.Decides(50)
		load.Stop()
		p := s.Agent.Settled(rig.Pool)
		for _, end := range []string{"failed", "refused", "timed_out", "died"} {
			if p.Outcomes[end] != 0 {
				t.Errorf("%d outcomes %s, want none", p.Outcomes[end], end)
			}
		}
		s.Idle(p)
		s.Untroubled()
	})
}

// TestReload reloads the proxy and the agent under load, with long streams that
// begin before and end after. No request fails, the agent learns the outcome of
// every one, and none is in flight at the end.
func TestReload(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 3, "least_requests")
		s.Start()
		load := rig.StartTraffic(t, s.Front, 6)
		s.Decides(30)

		const long = 8
		var streams sync.WaitGroup
		client := rig.NewClient(long, false, false)
		for range long {
			streams.Go(func() {
				c := rig.Held()
				if err := c.Check(c.Do(client, s.Front)); err != nil {
					t.Errorf("stream over a reload: %v", err)
				}
			})
		}
		rig.Eventually(t, 5*time.Second, "the long streams are in flight", func() (bool, string) {
			n := 0
			for _, e := range engines {
				n += e.Holds()
			}
			return n == long, fmt.Sprint(n)
		})
		s.Proxy.Reload()
		load.Await(60)
		s.Edit("max_requests: 0", "max_requests: 500")
		s.ReloadAgent()
		if p := s.Agent.Pool(rig.Pool); p.Reservations < long {
			t.Errorf("%d reservations after the agent's reload, want the %d long streams' at least", p.Reservations, long)
		}
		load.Await(60)
		s.Proxy.Reload()
		load.Await(60)
		n := load.Stop() + long
		for _, e := range engines {
			e.Release()
		}
		streams.Wait()

		p := s.Agent.Settled(rig.Pool)
		if p.Outcomes["served"] != n || p.Ended() != n {
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
		s.Idle(p)
		s.Untroubled()
	})
}

// TestRefusedReload breaks the configuration: SIGHUP then changes nothing.
func TestRefusedReload(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 3, "least_requests")
		s.Start()
		s.Edit("pools:", "polls:")
		s.Agent.Signal(syscall.SIGHUP)
		rig.Eventually(t, 5*time.Second, "the reload is refused by name", func() (bool, string) {
			log := s.Agent.Log.String()
			return strings.Contains(log, "reload refused") && strings.Contains(log, `\"polls\"`), log
		})
		s.Serve(http.DefaultClient, 10)
		if p := s.Agent.Settled(rig.Pool); p.Decisions != 10 {
			t.Errorf("%d decisions, want 10", p.Decisions)
		}
	})
}

// TestProxyCrash ends what serves requests in the proxy: it logs nothing, and
// the leases end what was reserved.
func TestProxyCrash(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 2, "least_requests", "lease: 1s")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		var broken sync.WaitGroup
		for range 4 {
			broken.Go(func() {
				if a := rig.Held().Do(client, s.Front); a.Err == nil {
					t.Errorf("a request survived its proxy: %d", a.Status)
				}
			})
		}
		s.AwaitReservations(4)
		s.Proxy.Crash()
		broken.Wait()
		p := s.Agent.Settled(rig.Pool)
		s.Idle(p)
		if n := s.Count("reservations_expired_total"); n != 4 || p.Ended() != 0 {
			t.Errorf("%d expired, outcomes %v", n, p.Outcomes)
		}
		s.Proxy.AwaitAgent()
		s.Serve(client, 10)
		if p := s.Agent.Settled(rig.Pool); p.Outcomes["served"] != 10 || p.Ended() != 10 || p.FellOpen != 0 {
			t.Errorf("after the crash: %+v", p)
		}
		s.Untroubled("pointsman_reservations_expired_total")
	})
}
