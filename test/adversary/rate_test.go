package adversary

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/test/rig"
)

// cpu is how much of the processors a process has used.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ") // its name may have spaces
	f := strings.Fields(rest)
	var ticks int
	for _, s := range f[11:13] { // in user mode, in the kernel
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestRate asks the agent as a proxy does, without one, as fast as it answers, and
// reports each request as served. All are answered, the counts are 0 again, and what the
// agent took for the peers it gives back. 20,000 requests/s take no more than one processor.
func TestRate(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		const peers, most = 32, 50 * time.Microsecond
		length := time.Second
		if rig.Soak {
			length = 20 * time.Second
		}
		s, _ := rig.Replicas(t, r, 8, "least_work")
		s.Agent.Start()
		goroutines := func() int { return int(s.Agent.Metrics()["go_goroutines"]) }
		calm := goroutines()
		run := func(first int, length time.Duration) (asked int64) {
			var n atomic.Int64
			var all sync.WaitGroup
			until := time.Now().Add(length)
			for i := range peers {
				p, err := s.Proxy.Peer(first + i)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				all.Go(func() {
					const window = 20 // as many as HAProxy has under way on a connection
					for k := 0; time.Now().Before(until); k += window {
						err := p.Served(window, func(j int) ([]byte, string) {
							return rig.Chat(rig.Model, 1000, 8, true, 4*(k+j)+peers*4000*i), ""
						})
						if err != nil {
							t.Errorf("peer %d: %v", i, err)
							return
						}
						n.Add(window)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		run(0, length/4) // what has a limit reaches it
		s.Agent.Settled(rig.Pool)
		before, used, start := s.Agent.RSS(), cpu(t, s.Agent.Cmd.Process.Pid), time.Now()
		n := run(peers, length)
		took := time.Since(start)
		each := (cpu(t, s.Agent.Cmd.Process.Pid) - used) / time.Duration(max(n, 1))
		more := s.Agent.RSS() - before
		start = time.Now()
		p := s.Agent.Settled(rig.Pool)
		t.Logf("%.0f decisions/s with their outcomes, %v of a processor each; the agent takes %d MiB more; nothing is in flight after %v; outcomes %v",
			float64(n)/took.Seconds(), each, more>>20, time.Since(start).Round(time.Millisecond), p.Outcomes)
		s.Idle(p)
		if n < 500 {
			t.Errorf("%d decisions in %v", n, took)
		}
		if rig.Soak && each > most {
			t.Errorf("a decision and its outcome take %v of a processor, want at most %v", each, most)
		}
		if more > 64<<20 && !rig.Raced {
			t.Errorf("the agent takes %d MiB more", more>>20)
		}
		// fasthttp keeps as many as it needed at a time, for a while.
		rig.Eventually(t, 10*time.Second, "the goroutines of the first peers have ended", func() (bool, string) {
			now := goroutines()
			return now <= calm+peers+peers/2, fmt.Sprintf("%d, before %d", now, calm)
		})
	})
}
