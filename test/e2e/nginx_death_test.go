package e2e

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// TestNginxAgentDeath is TestAgentDeath on nginx.
func TestNginxAgentDeath(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, engines := nginxReplicas(t, bin, 3)
		s.startProxy() // the agent is absent
		load := startTraffic(t, s.front, 6)
		load.await(60)
		for _, e := range engines {
			load.mu.Lock()
			if load.by[e.name] == 0 {
				t.Errorf("%s has no share of what nginx balances by itself: %v", e.name, load.by)
			}
			load.mu.Unlock()
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
		if p.Outcomes["died"]+p.Outcomes["refused"]+p.Outcomes["failed"]+p.Outcomes["timed_out"] > 0 {
			t.Errorf("outcomes: %v", p.Outcomes)
		}
		s.idle(p)
		s.quiet()
	})
}

// TestNginxReload reloads nginx and the agent under load, with long streams that
// begin before and end after. No request fails, no outcome is lost.
func TestNginxReload(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, _ := nginxReplicas(t, bin, 3)
		s.start()
		load := startTraffic(t, s.front, 6)
		s.decides(30)
		var streams sync.WaitGroup
		client := newClient(8, false, false)
		const long = 8
		for range long {
			streams.Go(func() {
				c := call{body: chat(model, 400, 127, true, 0), header: map[string]string{"X-Fake-Delay": "1500ms"}}
				if err := c.check(c.do(client, s.front)); err != nil {
					t.Errorf("stream over a reload: %v", err)
				}
			})
		}
		eventually(t, 5*time.Second, "the long streams are in flight", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.Reservations >= long, fmt.Sprintf("%+v", p)
		})
		s.nginx.Reload()
		load.await(60)
		s.edit("max_requests: 0", "max_requests: 500")
		s.agent.signal(syscall.SIGHUP)
		eventually(t, 5*time.Second, "the agent has reloaded", func() (bool, string) {
			return strings.Contains(s.agent.log.String(), "msg=reloaded"), s.agent.log.String()
		})
		if p := s.agent.pool(pool); p.Reservations < long {
			t.Errorf("%d reservations after the agent's reload, want the %d long streams' at least", p.Reservations, long)
		}
		load.await(60)
		s.nginx.Reload()
		load.await(60)
		n := load.stop() + long
		streams.Wait()
		p := s.agent.settled(pool)
		if p.Outcomes["served"] != n || p.ended() != n || p.Decisions != n || p.FellOpen != 0 {
			t.Errorf("%d requests: %+v", n, p)
		}
		s.idle(p)
		s.quiet()
	})
}

// TestNginxWorkerKilled kills nginx's workers in mid-request: they log nothing,
// and the leases end what was reserved.
func TestNginxWorkerKilled(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, _ := nginxReplicas(t, bin, 2, "lease: 1s")
		s.start()
		client := newClient(4, false, false)
		var broken sync.WaitGroup
		for range 4 {
			broken.Go(func() {
				c := call{body: chat(model, 400, 127, true, 0), header: map[string]string{"X-Fake-Delay": "5s"}}
				if a := c.do(client, s.front); a.err == nil {
					t.Errorf("a request survived its worker: %d", a.status)
				}
			})
		}
		eventually(t, 5*time.Second, "they are in flight", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.Reservations == 4, fmt.Sprintf("%+v", p)
		})
		s.nginx.KillWorkers()
		broken.Wait()
		p := s.agent.settled(pool)
		s.idle(p)
		if n := s.count("reservations_expired_total"); n != 4 || p.ended() != 0 {
			t.Errorf("%d expired, outcomes %v", n, p.Outcomes)
		}
		s.serve(client, 10)
	})
}
