package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// threeReplicas is a site with one pool of three replicas, not started. Its
// policy spreads equal requests, which one that looks at caches would not.
func threeReplicas(t *testing.T, bin proxies.Binary) (*site, []*engine) {
	t.Helper()
	var engines []*engine
	for i := range 3 {
		engines = append(engines, startEngine(t, fmt.Sprintf("r%d", i+1), fakevllm.Options{Models: []string{model}}))
	}
	return newSite(t, bin, fmt.Sprintf("pools: {%s: {models: [%s], policy: least_requests, max_requests: 0, replicas: %s}}\n", pool, model, replicasYAML(engines...))), engines
}

// decides waits until the agent has decided n requests more, and has learned
// what became of as many.
func (s *site) decides(n int) {
	s.t.Helper()
	before := s.agent.pool(pool)
	eventually(s.t, 20*time.Second, fmt.Sprint("decisions and their outcomes come: ", n), func() (bool, string) {
		p := s.agent.pool(pool)
		return p.Decisions >= before.Decisions+n && p.Outcomes["served"] >= before.Outcomes["served"]+n, fmt.Sprintf("%+v", p)
	})
}

// TestAgentDeath kills, stops and restarts the agent under load, beginning with
// none at all. No request fails, HAProxy balances by itself, and decisions come
// back by themselves.
func TestAgentDeath(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, engines := threeReplicas(t, bin)

		s.startProxy() // the agent is absent
		load := startTraffic(t, s.front, 6)
		load.await(60)
		for _, e := range engines {
			load.mu.Lock()
			if load.by[e.name] == 0 {
				t.Errorf("%s has no share of what HAProxy balances by itself: %v", e.name, load.by)
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
		if p.Outcomes["served"] < p.Decisions || p.ended() != p.Outcomes["served"] {
			t.Errorf("outcomes of %d decisions: %v", p.Decisions, p.Outcomes)
		}
		s.agent.untroubled()
	})
}

// TestAgentStopped stops the agent by SIGSTOP for long enough that HAProxy takes
// it out, with questions waiting in its sockets. When it wakes up, these must
// not leave reservations behind.
func TestAgentStopped(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, _ := threeReplicas(t, bin)
		s.start()
		load := startTraffic(t, s.front, 16)
		s.decides(50)
		s.agent.signal(syscall.SIGSTOP)
		load.await(600)
		s.agent.signal(syscall.SIGCONT)
		s.decides(50)
		load.stop()
		s.agent.settled(pool)
		s.agent.untroubled()
	})
}

// TestReload reloads HAProxy and the agent under load. No request fails, the
// agent learns of every one what became of it, and none is in flight at the end.
func TestReload(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, _ := threeReplicas(t, bin)
		s.start()
		load := startTraffic(t, s.front, 6)
		s.decides(30)

		// Long streams that begin before the reloads and end after them.
		var streams sync.WaitGroup
		client := newClient(8, false, false)
		const long = 8
		for range long {
			streams.Go(func() {
				c := call{body: chat(model, 400, 127, true, 0)}
				c.header = map[string]string{"X-Fake-Delay": "1500ms"}
				if err := c.check(c.do(client, s.front)); err != nil {
					t.Errorf("stream over a reload: %v", err)
				}
			})
		}
		eventually(t, 5*time.Second, "the long streams are in flight", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.Reservations >= long, fmt.Sprintf("%+v", p)
		})

		s.proxy.Reload()
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
		s.proxy.Reload()
		load.await(60)
		n := load.stop() + long
		streams.Wait()

		p := s.agent.settled(pool)
		if p.Outcomes["served"] != n || p.ended() != n {
			t.Errorf("outcomes %v of %d requests", p.Outcomes, n)
		}
		if p.Decisions != n || p.FellOpen != 0 {
			t.Errorf("%d decisions, %d without one, for %d requests", p.Decisions, p.FellOpen, n)
		}
		for _, r := range p.Replicas {
			if r.InFlight != 0 || r.Waiting != 0 || r.Tokens != 0 || r.Failed != 0 {
				t.Errorf("at the end: %+v", r)
			}
		}
		s.agent.untroubled()
	})
}

// TestRefusedReload breaks the configuration: SIGHUP then changes nothing.
func TestRefusedReload(t *testing.T) {
	s, _ := threeReplicas(t, proxies.HAProxies(t)[0])
	s.start()
	s.edit("pools:", "polls:")
	s.agent.signal(syscall.SIGHUP)
	eventually(t, 5*time.Second, "the reload is refused by name", func() (bool, string) {
		log := s.agent.log.String()
		return strings.Contains(log, "reload refused") && strings.Contains(log, `\"polls\"`), log
	})
	c := small(false)
	for range 10 {
		if err := c.check(c.do(http.DefaultClient, s.front)); err != nil {
			t.Error(err)
		}
	}
	if p := s.agent.settled(pool); p.Decisions != 10 {
		t.Errorf("%d decisions, want 10", p.Decisions)
	}
}
