package adversary

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestTwoDeadOfEight ends two of eight replicas under load. The six others serve
// every request that has not been sent yet, also while the proxy's own checks have
// found nothing: neither its retries nor the agent's probes lead a request from one
// dead replica to the other and no further.
func TestTwoDeadOfEight(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 8, "round_robin")
		s.Start()
		client := rig.NewClient(12, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 16)
		rounds := 2
		if rig.Soak {
			rounds = 20
		}
		for round := range rounds {
			dead := []*rig.Engine{engines[round%8], engines[(round+1+round/8)%8]}
			for _, e := range dead {
				e.Down(t)
			}
			var all sync.WaitGroup
			var lost, n atomic.Int32
			until := time.Now().Add(4 * time.Second)
			for range 12 { // each replica that is up has some, a dead one none
				all.Go(func() {
					c := rig.Call{Body: rig.Chat(rig.Model, 400, 100, true, 7)}
					for time.Now().Before(until) {
						n.Add(1)
						if err := c.Check(c.Do(client, s.Front)); err != nil {
							lost.Add(1)
							t.Logf("round %d: %v", round, err)
						}
					}
				})
			}
			all.Wait()
			if lost.Load() > 0 {
				t.Errorf("round %d: %d of %d requests lost, with six replicas of eight up", round, lost.Load(), n.Load())
			}
			for _, e := range dead {
				e.Up(t)
			}
			for _, e := range dead {
				s.AwaitState(e.Name, 30*time.Second, "up")
				s.Returns(client, e.Name)
			}
		}
	})
}
