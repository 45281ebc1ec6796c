package adversary

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"pointsman/test/rig"
)

// TestGrowth sends what grows in a day: each request has a session, a tenant, a salt and
// a prompt of its own. The agent's memory ends to grow.
func TestGrowth(t *testing.T) {
	rig.OnEach(t, rig.Rotated(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		n := 6_000 // requests in each half
		if rig.Soak {
			n = 300_000
		}
		s, _ := rig.Replicas(t, r, 3, "least_work", "session: {headers: [x-session-id]}")
		s.Edit("max_requests: 0", "max_requests: 64, admission: {wait: agent, tenants: [x-tenant]}, sticky_sessions: true")
		s.Unhurried()
		s.Start()
		ask := func(i int64) ([]byte, map[string]string) {
			return fmt.Appendf(nil, `{"model":%q,"max_tokens":1,"user":"u%d","cache_salt":"s%d","messages":[{"role":"user","content":"%d %s"}]}`,
				rig.Model, i, i, i, rig.Fill(600, int(i)*61)), map[string]string{"X-Session-Id": fmt.Sprint("session ", i), "X-Tenant": fmt.Sprint("tenant ", i)}
		}
		const clients = 24
		client := rig.NewClient(clients, true, false)
		defer client.CloseIdleConnections()
		var next atomic.Int64
		half := func(until int64) int {
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for i := next.Add(1); i <= until; i = next.Add(1) {
						body, header := ask(i)
						c := rig.Call{Body: body, Header: header}
						if err := c.Check(c.Do(client, s.Front)); err != nil {
							t.Errorf("request %d: %v", i, err)
						}
					}
				})
			}
			all.Wait()
			s.Agent.Settled(rig.Pool)
			return s.Agent.RSS()
		}
		if rig.Soak { // so many go faster without the proxy
			peers := 0
			half = func(until int64) int {
				var all sync.WaitGroup
				for range 6 {
					peers++
					p, err := s.Proxy.Peer(peers)
					if err != nil {
						t.Fatal(err)
					}
					defer p.Close()
					all.Go(func() {
						for next.Load() < until && !t.Failed() {
							err := p.Served(20, func(int) ([]byte, string) {
								body, header := ask(next.Add(1))
								return body, fmt.Sprintf("X-Session-Id: %s\r\nX-Tenant: %s\r\n", header["X-Session-Id"], header["X-Tenant"])
							})
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				s.Agent.Settled(rig.Pool)
				return s.Agent.RSS()
			}
		}
		half(int64(n))
		next.Store(int64(n))
		first := half(int64(2 * n))
		next.Store(int64(2 * n))
		second := half(int64(3 * n))
		series := len(s.Agent.Metrics())
		t.Logf("%d sessions and tenants: %d MiB, %d later: %d MiB; %d series", 2*n, first>>20, n, second>>20, series)
		if second-first > 24<<20 && !rig.Raced {
			t.Errorf("%d more sessions take %d MiB more", n, (second-first)>>20)
		}
		if series > 2000 {
			t.Errorf("%d series", series)
		}
	})
}
