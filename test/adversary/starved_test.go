package adversary

import (
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestStarvedAgent stops the agent while requests wait in it for almost as long as they
// may, and leaves it little of the processor after that. It reads late what happened,
// and refuses nobody for its own lateness.
func TestStarvedAgent(t *testing.T) {
	rig.OnEach(t, rig.Rotated(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		starvedAgent(t, r)
	})
}

func starvedAgent(t *testing.T, r rig.Release) {
	s, _ := rig.Replicas(t, r, 2, "least_work")
	s.Edit("max_requests: 0", "max_requests: 8, admission: {wait: agent, bands: {all: {ttl: 5s}}}")
	s.Unhurried()
	s.Start()
	client := rig.NewClient(250, true, false)
	defer client.CloseIdleConnections()
	var refused, served, other atomic.Int32
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 250 { // each waits for about 2.3 s
		all.Go(func() {
			c := rig.Call{Body: rig.Chat(rig.Model, 400, 150, true, 7)}
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch a := c.Do(client, s.Front); a.Status {
				case http.StatusOK:
					served.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					other.Add(1)
				}
			}
		})
	}
	time.Sleep(4 * time.Second)
	stops := 1
	if rig.Soak {
		stops = 10
	}
	for range stops {
		s.Agent.Signal(syscall.SIGSTOP)
		time.Sleep(3500 * time.Millisecond)
		s.Agent.Signal(syscall.SIGCONT)
		for range 20 { // a twentieth of a processor
			time.Sleep(5 * time.Millisecond)
			s.Agent.Signal(syscall.SIGSTOP)
			time.Sleep(95 * time.Millisecond)
			s.Agent.Signal(syscall.SIGCONT)
		}
		time.Sleep(time.Second)
	}
	close(stop)
	all.Wait()
	t.Logf("served %d, refused %d", served.Load(), refused.Load())
	if refused.Load() > 0 || other.Load() > 0 || served.Load() < 500 {
		t.Errorf("of %d requests that were served %d others were refused and %d failed", served.Load(), refused.Load(), other.Load())
	}
}
