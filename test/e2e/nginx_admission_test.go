package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// nginxQueueSite is queueSite on nginx.
func nginxQueueSite(t *testing.T, bin proxies.Binary, admission string) *nginxSite {
	t.Helper()
	e := startEngine(t, "r1", fakevllm.Options{Models: []string{model}})
	s := newNginxSite(t, bin, fmt.Sprintf("pools: {%s: {models: [%s], max_requests: 1, replicas: %s, admission: %s}}\n", pool, model, replicasYAML(e), admission))
	s.edit("processing_timeout: 1s, ", "")
	s.start()
	return s
}

// occupy sends a request that runs until the returned function is called, and
// waits until the agent has placed it.
func (s *nginxSite) occupy(client *http.Client) (end func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r, err := of("", time.Minute).request(ctx, s.front, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := client.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(s.t, 5*time.Second, "the first one runs", func() (bool, string) {
		p := s.agent.pool(pool)
		return p.Reservations == 1, fmt.Sprintf("%+v", p)
	})
	return func() { cancel(); <-ended }
}

// On nginx an urgent request overtakes those that wait, a deadline refuses, and
// clients that leave are forgotten.
func TestNginxAdmission(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s := nginxQueueSite(t, bin, "{wait: agent, band_header: x-band, deadline_header: x-deadline, response_headers: true, bands: {urgent: {ttl: 20s}, batch: {ttl: 20s}}}")
		client := newClient(32, true, false)
		defer client.CloseIdleConnections()
		free := s.occupy(client)
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		send := func(band string) {
			all.Go(func() {
				c := of(band, 20*time.Millisecond)
				a := c.do(client, s.front)
				if err := c.check(a); err != nil {
					t.Errorf("%s: %v", band, err)
				}
				if got := a.header.Get("X-Pointsman-Band"); got != band {
					t.Errorf("it was told the band %q, want %q", got, band)
				}
				if ms, err := strconv.Atoi(a.header.Get("X-Pointsman-Wait-Ms")); err != nil || ms == 0 {
					t.Errorf("%s: it was told the wait %q", band, a.header.Get("X-Pointsman-Wait-Ms"))
				}
				mu.Lock()
				order = append(order, band)
				mu.Unlock()
			})
		}
		for range 5 {
			send("batch")
		}
		s.awaitQueued("batch", 5)
		send("urgent")
		s.awaitQueued("urgent", 1)

		late := of("batch", 0)
		late.header["X-Deadline"] = "300ms"
		if a := late.do(client, s.front); a.err != nil || a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
			t.Errorf("past its deadline: %d %s %v", a.status, a.body, a.err)
		}
		ctx, leave := context.WithCancel(t.Context())
		r, err := of("batch", 0).request(ctx, s.front, nil)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if resp, err := client.Do(r); err == nil {
				resp.Body.Close()
				t.Errorf("a client that left was answered %d", resp.StatusCode)
			}
		})
		s.awaitQueued("batch", 6)
		leave()
		s.awaitQueued("batch", 5)
		free()
		all.Wait()
		if at := slices.Index(order, "urgent"); at != 0 {
			t.Errorf("served in the order %v", order)
		}
		s.agent.settled(pool)
		s.quiet()
	})
}

// The agent is killed while it holds 500 of nginx's requests. Every one is
// served.
func TestNginxAgentDeathWhileHolding(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s := nginxQueueSite(t, bin, "{wait: agent, bands: {all: {ttl: 30s}}}")
		const n = 500
		client := newClient(n, true, false)
		defer client.CloseIdleConnections()
		free := s.occupy(client)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				c := small(i%2 == 0)
				if err := c.check(c.do(client, s.front)); err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			})
		}
		s.awaitQueued("all", n)
		s.agent.kill()
		start := time.Now()
		free()
		all.Wait()
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("served %v after the agent was killed", took)
		}
		s.agent.start()
	})
}
