package e2e

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestIdleConnectionsEnd has replicas close every third idle connection at a random
// moment, of which some are those at which the proxy sends the next request. No request
// fails, and no reservation is left, whether its body fits into the proxy's buffer or
// not. If all connections ended so, a busy machine would see a request meet one at each
// of its four tries.
func TestIdleConnectionsEnd(t *testing.T) {
	for _, kept := range []string{"kept", "new"} {
		t.Run(kept, func(t *testing.T) {
			rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
				t.Parallel()
				s, engines := rig.Replicas(t, r, 3, "least_requests")
				if kept == "kept" {
					s.Edit("retry_sent: false", "retry_sent: true")
				} else if !r.Can.Checks {
					t.Skip("without retry_sent this proxy answers 502 there, and says so")
				}
				for _, e := range engines {
					e.Closes = func() time.Duration {
						if rand.IntN(3) > 0 {
							return time.Minute
						}
						return time.Duration(rand.IntN(40_000)) * time.Microsecond
					}
				}
				s.Patient()
				s.Start()
				n := 700
				if rig.Soak {
					n = 5000
				}
				const clients = 8
				client := rig.NewClient(clients, true, false)
				defer client.CloseIdleConnections()
				var wg sync.WaitGroup
				for c := range clients {
					wg.Go(func() {
						for i := range n / clients {
							call := rig.Small(i%2 == 0)
							if i%16 == 0 { // more than the buffer holds
								call.Body = rig.Chat(rig.Model, 300_000, 4, false, 1000*c+i)
							}
							if a := call.Do(client, s.Front); a.Err != nil || a.Status != http.StatusOK {
								t.Errorf("request %d of %d bytes: %d, %v", i, len(call.Body), a.Status, a.Err)
							}
							time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
						}
					})
				}
				wg.Wait()
				p := s.Agent.Settled(rig.Pool)
				if want := n / clients * clients; p.Outcomes["served"] != want || p.Ended() != want {
					t.Errorf("outcomes %v of %d requests", p.Outcomes, want)
				}
				s.Idle(p)
				s.Untroubled()
			})
		})
	}
}
