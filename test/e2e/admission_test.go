package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// queueSite is a site with one pool of a single replica that takes one request
// at a time. admission is the YAML of the pool's, in flow form.
func queueSite(t *testing.T, bin proxies.Binary, admission string) *site {
	t.Helper()
	e := startEngine(t, "r1", fakevllm.Options{Models: []string{model}})
	s := newSite(t, bin, fmt.Sprintf("pools: {%s: {models: [%s], max_requests: 1, replicas: %s, admission: %s}}\n", pool, model, replicasYAML(e), admission))
	s.edit(", processing_timeout: 1s", "")
	s.start()
	return s
}

// queued is how many requests of the band wait, as the agent sees it.
func (s *site) queued(band string) int {
	s.t.Helper()
	b, err := s.agent.get("/status")
	if err != nil {
		s.t.Fatal(err)
	}
	var st struct {
		Pools []struct {
			Admission struct {
				Bands []struct {
					Name   string `json:"name"`
					Queued int    `json:"queued"`
				} `json:"bands"`
			} `json:"admission"`
		}
	}
	if err := json.Unmarshal(b, &st); err != nil {
		s.t.Fatal(err)
	}
	for _, x := range st.Pools[0].Admission.Bands {
		if x.Name == band {
			return x.Queued
		}
	}
	s.t.Fatalf("no band %s:\n%s", band, b)
	return 0
}

// awaitQueued waits until n requests of the band wait.
func (s *site) awaitQueued(band string, n int) {
	s.t.Helper()
	eventually(s.t, 10*time.Second, fmt.Sprintf("%d of band %s wait", n, band), func() (bool, string) {
		got := s.queued(band)
		return got == n, fmt.Sprint(got)
	})
}

// of is a small request of a band, which the engine takes delay for.
func of(band string, delay time.Duration) call {
	c := small(true)
	c.header = map[string]string{"X-Band": band, "X-Fake-Delay": delay.String()}
	return c
}

// Where requests wait in the agent and where they wait in the proxy, one of an
// urgent band overtakes those of another that came before it.
func TestUrgentOvertakes(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		for _, wait := range []string{"agent", "proxy"} {
			t.Run(wait, func(t *testing.T) {
				t.Parallel()
				s := queueSite(t, bin, "{wait: "+wait+", band_header: x-band, response_headers: true, bands: {urgent: {ttl: 20s}, batch: {ttl: 20s}}}")
				client := newClient(32, true, false)
				defer client.CloseIdleConnections()
				var mu sync.Mutex
				var order []string
				var all sync.WaitGroup
				send := func(name string, c call) {
					all.Go(func() {
						a := c.do(client, s.front)
						if err := c.check(a); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if got, want := a.header.Get("X-Pointsman-Band"), c.header["X-Band"]; got != want {
							t.Errorf("%s: it was told the band %q, want %q", name, got, want)
						}
						if _, err := strconv.Atoi(a.header.Get("X-Pointsman-Wait-Ms")); err != nil {
							t.Errorf("%s: it was told the wait %q", name, a.header.Get("X-Pointsman-Wait-Ms"))
						}
						mu.Lock()
						order = append(order, name)
						mu.Unlock()
					})
				}
				send("first", of("batch", 1500*time.Millisecond))
				eventually(t, 5*time.Second, "the first one runs", func() (bool, string) {
					p := s.agent.pool(pool)
					return p.Reservations == 1, fmt.Sprintf("%+v", p)
				})
				for range 5 {
					send("batch", of("batch", 20*time.Millisecond))
				}
				s.awaitQueued("batch", 5)
				send("urgent", of("urgent", 20*time.Millisecond))
				all.Wait()
				if at := slices.Index(order, "urgent"); at != 1 {
					t.Errorf("served in the order %v", order)
				}
				s.agent.settled(pool)
				s.agent.untroubled()
			})
		}
	})
}

// A request that cannot be served by its deadline, or within its time to live,
// is refused then, and told when to come back. One whose client leaves is
// forgotten.
func TestDeadlinesRefuse(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s := queueSite(t, bin, "{wait: agent, deadline_header: x-deadline, bands: {all: {ttl: 900ms, max_requests: 4}}}")
		client := newClient(32, true, false)
		defer client.CloseIdleConnections()
		var all sync.WaitGroup
		first := of("", 2500*time.Millisecond)
		all.Go(func() {
			if err := first.check(first.do(client, s.front)); err != nil {
				t.Error(err)
			}
		})
		eventually(t, 5*time.Second, "the first one runs", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.Reservations == 1, fmt.Sprintf("%+v", p)
		})
		refused := func(name, deadline, reason string, least, most time.Duration) {
			c := small(true)
			if deadline != "" {
				c.header = map[string]string{"X-Deadline": deadline}
			}
			all.Go(func() {
				start := time.Now()
				a := c.do(client, s.front)
				took := time.Since(start)
				if a.err != nil || a.status != http.StatusTooManyRequests || !strings.Contains(string(a.body), reason) {
					t.Errorf("%s: %d %s %v", name, a.status, a.body, a.err)
				}
				if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 {
					t.Errorf("%s: Retry-After %q", name, a.header.Get("Retry-After"))
				}
				if took < least || took > most {
					t.Errorf("%s: refused after %v, want %v to %v", name, took, least, most)
				}
			})
		}
		refused("deadline", "300ms", "deadline", 200*time.Millisecond, 800*time.Millisecond)
		refused("time to live", "", "in time", 850*time.Millisecond, 2*time.Second)
		s.awaitQueued("all", 2)

		ctx, leave := context.WithCancel(t.Context())
		for range 2 {
			r, err := small(true).request(ctx, s.front, nil)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if resp, err := client.Do(r); err == nil {
					resp.Body.Close()
					t.Errorf("a client that left was answered %d", resp.StatusCode)
				}
			})
		}
		s.awaitQueued("all", 4)
		refused("full", "", "waiting", 0, 500*time.Millisecond)
		eventually(t, 5*time.Second, "one is refused at once", func() (bool, string) {
			m := s.agent.metrics()
			return m[`pointsman_shed_total{pool="llama",band="all",tenants="other",reason="queue_full"}`] == 1, ""
		})
		leave()
		if bin.Version == "2.6" { // later ones tell it only when the answer comes, most of the time
			eventually(t, 700*time.Millisecond, "clients that left are forgotten", func() (bool, string) {
				n := s.agent.metrics()[`pointsman_client_gone_while_held_total{pool="llama",band="all",tenants="other"}`]
				return n == 2, fmt.Sprint(n)
			})
		}
		all.Wait()
		p := s.agent.settled(pool)
		if p.Outcomes["served"] != 1 {
			t.Errorf("outcomes %v, want one served", p.Outcomes)
		}
		s.agent.untroubled()
	})
}

// The agent is killed while it holds 500 requests. HAProxy serves every one of
// them by itself.
func TestAgentDeathWhileHolding(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s := queueSite(t, bin, "{wait: agent, bands: {all: {ttl: 30s}}}")
		const n = 500
		client := newClient(n, true, false)
		defer client.CloseIdleConnections()
		var all sync.WaitGroup
		first := of("", 20*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := first.request(ctx, s.front, nil)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if resp, err := client.Do(r); err == nil {
				resp.Body.Close()
			}
		})
		eventually(t, 5*time.Second, "the first one runs", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.Reservations == 1, fmt.Sprintf("%+v", p)
		})
		for i := range n {
			all.Go(func() {
				c := small(i%2 == 0)
				if err := c.check(c.do(client, s.front)); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			})
		}
		s.awaitQueued("all", n)
		t.Logf("%d connections carry %d held requests", int(s.agent.metrics()["pointsman_spoe_connections"]), n)
		s.agent.kill()
		start := time.Now()
		cancel()
		all.Wait()
		t.Logf("all served %v after the agent was killed", time.Since(start))
		if most := 10 * time.Second; time.Since(start) > most {
			t.Errorf("it took %v, want %v at most", time.Since(start), most)
		}
		s.agent.start()
	})
}
