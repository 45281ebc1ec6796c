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
)

// queueSite is a site with one pool of a single replica that takes one request
// at a time, started. admission is the YAML of the pool's, in flow form.
func queueSite(t *testing.T, r release, admission string) (*site, *engine) {
	t.Helper()
	e := startEngine(t, "r1", engineOptions{Models: []string{model}})
	s := newSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], max_requests: 1, replicas: %s, admission: %s}}\n", pool, model, replicasYAML(e), admission))
	s.unhurried()
	s.start()
	return s, e
}

// occupy sends a request that the engine holds, and waits until it is there. The
// returned function lets it go on, and waits until it has been served.
func (s *site) occupy(e *engine) (free func()) {
	s.t.Helper()
	client := newClient(1, false, false)
	done := make(chan error, 1)
	go func() {
		c := held()
		done <- c.check(c.do(client, s.front))
	}()
	s.awaitReservations(1)
	eventually(s.t, 5*time.Second, "the first request runs", func() (bool, string) { return e.holds() == 1, "" })
	return func() {
		s.t.Helper()
		e.release()
		if err := <-done; err != nil {
			s.t.Errorf("the first request: %v", err)
		}
	}
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
	eventually(s.t, 20*time.Second, fmt.Sprintf("%d of band %s wait", n, band), func() (bool, string) {
		got := s.queued(band)
		return got == n, fmt.Sprint(got)
	})
}

// fill sends n requests that wait in the band, some at a time: each needs a
// connection to the agent of its own, and a proxy goes on without the agent when
// a busy machine does not open them all in time.
func (s *site) fill(band string, n int, send func(i int)) {
	s.t.Helper()
	for i := range n {
		send(i)
		if (i+1)%10 == 0 || i+1 == n {
			s.awaitQueued(band, i+1)
		}
	}
}

// leaver sends requests whose clients leave.
type leaver struct {
	t      *testing.T
	client *http.Client
	host   string
	leave  func()
	ctx    context.Context
	all    sync.WaitGroup
}

// newLeaver returns one whose requests go to host, each on a connection of its
// own.
func newLeaver(t *testing.T, host string, h2 bool) *leaver {
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	return &leaver{t: t, client: newClient(1, false, h2), host: host, leave: leave, ctx: ctx}
}

// send sends c. That it is answered with a response fails the test.
func (l *leaver) send(c call) {
	l.t.Helper()
	r, err := c.request(l.ctx, l.host, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	l.all.Go(func() {
		if resp, err := l.client.Do(r); err == nil {
			resp.Body.Close()
			l.t.Errorf("a client that left was answered %d", resp.StatusCode)
		}
	})
}

// TestUrgentOvertakes has requests wait in the agent, and in the proxy where it
// has queues. One of an urgent band overtakes those of another that came before.
func TestUrgentOvertakes(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		places := []string{"agent"}
		if r.can.queues {
			places = append(places, "proxy")
		}
		for _, wait := range places {
			t.Run(wait, func(t *testing.T) {
				t.Parallel()
				s, e := queueSite(t, r, "{wait: "+wait+", band_header: x-band, response_headers: true, bands: {urgent: {ttl: 5m}, batch: {ttl: 5m}}}")
				client := newClient(32, true, false)
				defer client.CloseIdleConnections()
				var all sync.WaitGroup
				send := func(band, name string, waits bool) {
					all.Go(func() {
						c := of(band)
						c.header["X-Watch"] = name
						a := c.do(client, s.front)
						if err := c.check(a); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if got := a.header.Get("X-Pointsman-Band"); got != band {
							t.Errorf("%s: X-Pointsman-Band is %q, want %q", name, got, band)
						}
						ms, err := strconv.Atoi(a.header.Get("X-Pointsman-Wait-Ms"))
						if err != nil || (ms > 0) != (waits && wait == "agent") && waits {
							t.Errorf("%s: X-Pointsman-Wait-Ms is %q", name, a.header.Get("X-Pointsman-Wait-Ms"))
						}
					})
				}
				send("batch", "alone", false)
				all.Wait()
				s.agent.settled(pool)
				free := s.occupy(e)
				for i := range 5 {
					send("batch", fmt.Sprint("batch ", i), true)
				}
				s.awaitQueued("batch", 5)
				send("urgent", "urgent", true)
				s.awaitQueued("urgent", 1)
				time.Sleep(2 * time.Millisecond) // what has waited has waited a millisecond
				free()
				all.Wait()
				if order := e.arrived(); slices.Index(order, "urgent") != 1 || len(order) != 7 {
					t.Errorf("served in the order %q", order)
				}
				s.agent.settled(pool)
				s.untroubled()
			})
		}
	})
}

// TestDeadlines refuses a request that cannot be served by its deadline or
// within its time to live, and one beyond the limit, with the time after which
// to come back. Requests whose clients leave are forgotten.
func TestDeadlines(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, e := queueSite(t, r, "{wait: agent, band_header: x-band, deadline_header: x-deadline, bands: {brief: {ttl: 900ms}, long: {ttl: 5m, max_requests: 3}}}")
		client := newClient(32, true, false)
		defer client.CloseIdleConnections()
		free := s.occupy(e)
		refused := func(name, band, deadline, reason string, least time.Duration) {
			t.Helper()
			c := of(band)
			if deadline != "" {
				c.header["X-Deadline"] = deadline
			}
			start := time.Now()
			a := c.do(client, s.front)
			took := time.Since(start)
			if a.err != nil || a.status != http.StatusTooManyRequests || !strings.Contains(string(a.body), reason) {
				t.Errorf("%s: %d %s %v", name, a.status, a.body, a.err)
			}
			if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 {
				t.Errorf("%s: Retry-After %q", name, a.header.Get("Retry-After"))
			}
			// The first request goes on: nothing else could have ended the wait.
			if took < least {
				t.Errorf("%s: refused after %v, want %v or more", name, took, least)
			}
		}
		refused("deadline", "long", "300ms", "deadline", 200*time.Millisecond)
		refused("time to live", "brief", "", "in time", 850*time.Millisecond)

		stays := make(chan error, 1)
		go func() {
			c := of("long")
			stays <- c.check(c.do(client, s.front))
		}()
		leaving := newLeaver(t, s.front, false)
		leaving.send(of("long"))
		leaving.send(of("long"))
		s.awaitQueued("long", 3)
		refused("full", "long", "", "waiting", 0)
		shed := `pointsman_shed_total{pool="llama",band="long",tenants="other",reason="queue_full"}`
		if n := s.agent.metrics()[shed]; n != 1 {
			t.Errorf("%s is %v, want 1", shed, n)
		}
		leaving.leave()
		if r.can.noticesLeaving {
			s.awaitQueued("long", 1)
			gone := `pointsman_client_gone_while_held_total{pool="llama",band="long",tenants="other"}`
			if n := s.agent.metrics()[gone]; n != 2 {
				t.Errorf("%s is %v, want 2", gone, n)
			}
		}
		leaving.all.Wait()
		if e.holds() != 1 {
			t.Error("the first request is over: it did not keep the others waiting")
		}
		free()
		if err := <-stays; err != nil {
			t.Error(err)
		}
		p := s.agent.settled(pool)
		if p.Outcomes["served"] != 2 {
			t.Errorf("outcomes %v, want two served", p.Outcomes)
		}
		s.untroubled()
	})
}

// TestDeathWhileHolding kills the agent while it holds 500 requests. The proxy
// serves every one of them by itself.
func TestDeathWhileHolding(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, e := queueSite(t, r, "{wait: agent, bands: {all: {ttl: 5m}}}")
		const n = 500
		client := newClient(n, true, false)
		defer client.CloseIdleConnections()
		free := s.occupy(e)
		var all sync.WaitGroup
		s.fill("all", n, func(i int) {
			all.Go(func() {
				c := small(i%2 == 0)
				if err := c.check(c.do(client, s.front)); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			})
		})
		s.agent.kill()
		start := time.Now()
		free()
		all.Wait()
		took := time.Since(start)
		t.Logf("all served %v after the agent was killed", took)
		if most := 10 * time.Second; took > most && !raced {
			t.Errorf("it took %v, want %v at most", took, most)
		}
		s.agent.start()
	})
}
