package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// Clients leave while their requests are held. HAProxy 2.6 tells it at once, and
// later ones do of clients that speak HTTP/2. Of the others they tell it when
// the turn of the request comes, and its place is free again at once: who waits
// behind them is served as soon as there is room.
func TestLeavingWhileHeld(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprint("h2=", h2), func(t *testing.T) {
				t.Parallel()
				const n = 30
				e := startEngine(t, "r1", fakevllm.Options{Models: []string{model}})
				s := newSite(t, bin, fmt.Sprintf("pools: {%s: {models: [%s], max_requests: 1, replicas: %s, admission: {wait: agent, band_header: x-band, bands: {leaving: {ttl: 20s}, behind: {ttl: 20s}}}}}\n", pool, model, replicasYAML(e)))
				s.edit(", processing_timeout: 1s", "")
				s.start()
				address := s.front
				if h2 {
					address = s.front2
				}
				send := func(ctx context.Context, c call, all *sync.WaitGroup) {
					client := newClient(n, true, h2)
					t.Cleanup(client.CloseIdleConnections)
					r, err := c.request(ctx, address, nil)
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
				var left sync.WaitGroup
				first, free := context.WithCancel(t.Context())
				defer free()
				send(first, of("", time.Minute), &left)
				eventually(t, 5*time.Second, "the first one runs", func() (bool, string) {
					p := s.agent.pool(pool)
					return p.Reservations == 1, fmt.Sprintf("%+v", p)
				})
				ctx, leave := context.WithCancel(t.Context())
				for i := range n {
					c := small(true)
					c.header = map[string]string{"X-Watch": fmt.Sprint(i), "X-Band": "leaving"}
					send(ctx, c, &left)
				}
				s.awaitQueued("leaving", n)
				leave()
				if h2 || bin.Version == "2.6" {
					s.awaitQueued("leaving", 0)
				}

				behind := newClient(1, true, false)
				defer behind.CloseIdleConnections()
				var served sync.WaitGroup
				served.Go(func() {
					c := of("behind", 0)
					if err := c.check(c.do(behind, s.front)); err != nil {
						t.Error(err)
					}
				})
				s.awaitQueued("behind", 1)
				queued := s.queued("leaving")
				start := time.Now()
				free()
				served.Wait()
				if took := time.Since(start); took > 10*time.Second { // half of what they were to wait
					t.Errorf("it was served %v after the replica was free", took)
				}
				left.Wait()
				p := s.agent.settled(pool)
				if p.Outcomes["served"] != 1 {
					t.Errorf("outcomes %v, want one served", p.Outcomes)
				}
				reached := 0
				e.emitted.Range(func(any, any) bool { reached++; return true })
				t.Logf("%d of %d stood before it, %d reached the replica; served after %v; outcomes %v", queued, n, reached, time.Since(start), p.Outcomes)
				if reached > queued {
					t.Errorf("the replica got %d requests of clients that HAProxy knew had left", reached-queued)
				}
				s.agent.untroubled()
			})
		}
	})
}

// A request whose client has left unnoticed is given up at its deadline or its
// time to live, at the latest.
func TestLeavingEndsInTime(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		const n = 10
		s := queueSite(t, bin, "{wait: agent, deadline_header: x-deadline, bands: {all: {ttl: 2s}}}")
		client := newClient(n, true, false)
		defer client.CloseIdleConnections()
		ctx, free := context.WithCancel(t.Context())
		defer free()
		var all sync.WaitGroup
		send := func(ctx context.Context, c call) {
			r, err := c.request(ctx, s.front, nil)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if resp, err := client.Do(r); err == nil && resp.StatusCode == http.StatusOK {
					resp.Body.Close()
				}
			})
		}
		send(ctx, of("", time.Minute))
		eventually(t, 5*time.Second, "the first one runs", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.Reservations == 1, fmt.Sprintf("%+v", p)
		})
		waiting, leave := context.WithCancel(t.Context())
		for i := range n {
			c := small(true)
			if i%2 == 0 {
				c.header = map[string]string{"X-Deadline": "1s"}
			}
			send(waiting, c)
		}
		s.awaitQueued("all", n)
		leave()
		s.awaitQueued("all", 0)
		if p := s.agent.pool(pool); p.Reservations != 1 {
			t.Errorf("%+v", p)
		}
		free()
		all.Wait()
		s.agent.settled(pool)
		s.agent.untroubled()
	})
}
