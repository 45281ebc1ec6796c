package adversary

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestCountsAfterSilence stops the agent under load until the feed has lost lines: the
// ring of HAProxy overflows, and so does the socket that nginx writes to. A few
// requests run all the time, the others begin and end meanwhile. Within 10 s of its
// return the agent counts those few again, and none when they have ended.
func TestCountsAfterSilence(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 2, "least_requests")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		client.Timeout = 5 * time.Minute
		const running = 4
		var long sync.WaitGroup
		for range running {
			long.Go(func() {
				c := rig.Held()
				if err := c.Check(c.Do(client, s.Front)); err != nil {
					t.Errorf("a request that ran all the time: %v", err)
				}
			})
		}
		holds := func() (n int) {
			for _, e := range engines {
				n += e.Holds()
			}
			return n
		}
		rig.Eventually(t, 10*time.Second, "the long requests run", func() (bool, string) { return holds() == running, fmt.Sprint(holds()) })
		load := rig.StartTraffic(t, s.Front, 12)
		load.Await(100)
		silence := 3 * time.Second
		if rig.Soak {
			silence = time.Minute
		}
		s.Agent.Signal(syscall.SIGSTOP)
		time.Sleep(silence)
		n := load.Stop()
		s.Agent.Signal(syscall.SIGCONT)
		start := time.Now()
		counted := func(want int, most time.Duration) {
			t.Helper()
			rig.Eventually(t, most, fmt.Sprint("requests in flight: ", want), func() (bool, string) {
				p := s.Agent.Pool(rig.Pool)
				sum := 0
				for _, x := range p.Replicas {
					sum += x.InFlight
				}
				return p.Reservations == want && sum == want, fmt.Sprintf("%+v", p)
			})
		}
		counted(running, 10*time.Second)
		t.Logf("%d requests; right again after %v", n, time.Since(start).Round(time.Millisecond))
		time.Sleep(5 * time.Second) // longer than what shows that outcomes were lost
		counted(running, 10*time.Second)
		for _, e := range engines {
			e.Release()
		}
		long.Wait()
		// Those that were taken for lost and ran give way to others as they end.
		counted(0, 10*time.Second)
	})
}
