package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestUrgentOvertakes has requests wait in the agent, and in the proxy where it
// has queues. One of an urgent band overtakes those of another that came before.
func TestUrgentOvertakes(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		places := []string{"agent"}
		if r.Can.Queues {
			places = append(places, "proxy")
		}
		for _, wait := range places {
			t.Run(wait, func(t *testing.T) {
				t.Parallel()
				s, e := rig.QueueSite(t, r, "{wait: "+wait+", band_header: x-band, response_headers: true, bands: {urgent: {ttl: 5m}, batch: {ttl: 5m}}}")
				client := rig.NewClient(32, true, false)
				defer client.CloseIdleConnections()
				var all sync.WaitGroup
				send := func(band, name string, waits bool) {
					all.Go(func() {
						c := rig.Of(band)
						c.Header["X-Watch"] = name
						a := c.Do(client, s.Front)
						if err := c.Check(a); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if got := a.Header.Get("X-Pointsman-Band"); got != band {
							t.Errorf("%s: X-Pointsman-Band is %q, want %q", name, got, band)
						}
						ms, err := strconv.Atoi(a.Header.Get("X-Pointsman-Wait-Ms"))
						if err != nil || (ms > 0) != (waits && wait == "agent") && waits {
							t.Errorf("%s: X-Pointsman-Wait-Ms is %q", name, a.Header.Get("X-Pointsman-Wait-Ms"))
						}
					})
				}
				send("batch", "alone", false)
				all.Wait()
				s.Agent.Settled(rig.Pool)
				free := s.Occupy(e)
				for i := range 5 {
					send("batch", fmt.Sprint("batch ", i), true)
				}
				s.AwaitQueued("batch", 5)
				send("urgent", "urgent", true)
				s.AwaitQueued("urgent", 1)
				time.Sleep(2 * time.Millisecond) // what has waited has waited a millisecond
				free()
				all.Wait()
				if order := e.Arrived(); slices.Index(order, "urgent") != 1 || len(order) != 7 {
					t.Errorf("served in the order %q", order)
				}
				s.Agent.Settled(rig.Pool)
				s.Untroubled()
			})
		}
	})
}

// TestDeadlines refuses a request that cannot be served by its deadline or
// within its time to live, and one beyond the limit, with the time after which
// to come back. Requests whose clients leave are forgotten.
func TestDeadlines(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, e := rig.QueueSite(t, r, "{wait: agent, band_header: x-band, deadline_header: x-deadline, bands: {brief: {ttl: 900ms}, long: {ttl: 5m, max_requests: 3}}}")
		client := rig.NewClient(32, true, false)
		defer client.CloseIdleConnections()
		free := s.Occupy(e)
		refused := func(name, band, deadline, reason string, least time.Duration) {
			t.Helper()
			c := rig.Of(band)
			if deadline != "" {
				c.Header["X-Deadline"] = deadline
			}
			start := time.Now()
			a := c.Do(client, s.Front)
			took := time.Since(start)
			if a.Err != nil || a.Status != http.StatusTooManyRequests || !strings.Contains(string(a.Body), reason) {
				t.Errorf("%s: %d %s %v", name, a.Status, a.Body, a.Err)
			}
			if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 {
				t.Errorf("%s: Retry-After %q", name, a.Header.Get("Retry-After"))
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
			c := rig.Of("long")
			stays <- c.Check(c.Do(client, s.Front))
		}()
		leaving := rig.NewLeaver(t, s.Front, false)
		leaving.Send(rig.Of("long"))
		leaving.Send(rig.Of("long"))
		s.AwaitQueued("long", 3)
		refused("full", "long", "", "waiting", 0)
		shed := `pointsman_shed_total{pool="llama",band="long",tenants="other",reason="queue_full"}`
		if n := s.Agent.Metrics()[shed]; n != 1 {
			t.Errorf("%s is %v, want 1", shed, n)
		}
		leaving.Leave()
		if r.Can.NoticesLeaving {
			s.AwaitQueued("long", 1)
			gone := `pointsman_client_gone_while_held_total{pool="llama",band="long",tenants="other"}`
			if n := s.Agent.Metrics()[gone]; n != 2 {
				t.Errorf("%s is %v, want 2", gone, n)
			}
		}
		leaving.All.Wait()
		if e.Holds() != 1 {
			t.Error("the first request is over: it did not keep the others waiting")
		}
		free()
		if err := <-stays; err != nil {
			t.Error(err)
		}
		p := s.Agent.Settled(rig.Pool)
		if p.Outcomes["served"] != 2 {
			t.Errorf("outcomes %v, want two served", p.Outcomes)
		}
		s.Untroubled()
	})
}

// TestDeathWhileHolding kills the agent while it holds 500 requests. The proxy
// serves every one of them by itself.
func TestDeathWhileHolding(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, e := rig.QueueSite(t, r, "{wait: agent, bands: {all: {ttl: 5m}}}")
		const n = 500
		client := rig.NewClient(n, true, false)
		defer client.CloseIdleConnections()
		free := s.Occupy(e)
		var all sync.WaitGroup
		s.Fill("all", n, func(i int) {
			all.Go(func() {
				c := rig.Small(i%2 == 0)
				if err := c.Check(c.Do(client, s.Front)); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			})
		})
		s.Agent.Kill()
		start := time.Now()
		free()
		all.Wait()
		took := time.Since(start)
		t.Logf("all served %v after the agent was killed", took)
		if most := 10 * time.Second; took > most && !rig.Raced {
			t.Errorf("it took %v, want %v at most", took, most)
		}
		s.Agent.Start()
	})
}
