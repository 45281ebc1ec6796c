package e2e

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestHoldingIsCheap has the agent hold 10,000 requests of 4 KB, each on a
// connection of its own, in at most 200 MB. It decides for another pool as before,
// and answers all of them when it ends. The memory that counts is the growth of
// what is resident, also when the decisions for others have filled the heap with
// garbage.
func TestHoldingIsCheap(t *testing.T) {
	if rig.Raced {
		t.Skip("the race detector has a memory of its own")
	}
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		const n = 10_000
		s, idle := holdingSite(t, r, n), holdingSite(t, r, n)
		s.Agent.Start()
		idle.Agent.Start()
		other := rig.Chat("other", 4096, 8, true, 7)
		decide := func(s *rig.Site, i int) time.Duration {
			t.Helper()
			start := time.Now()
			q, err := s.Proxy.Ask(fmt.Sprintf("%032x", 1<<20+i), other)
			if err == nil {
				err = q.Answered()
			}
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			q.Close()
			return took
		}
		for i := range 200 {
			decide(s, i)
		}
		before := s.Agent.RSS()
		body := rig.Chat(rig.Model, 4096, 8, true, 7)
		held := make([]rig.Question, n+1)
		var all sync.WaitGroup
		for w := range 8 {
			all.Go(func() {
				for i := w; i < len(held); i += 8 {
					var err error
					if held[i], err = s.Proxy.Ask(fmt.Sprintf("%032x", i+1), body); err != nil {
						t.Errorf("request %d: %v", i, err)
						return
					}
				}
			})
		}
		all.Wait()
		s.AwaitQueued("all", n)
		after := s.Agent.RSS()
		over, err := s.Proxy.Ask(fmt.Sprintf("%032x", 2<<20), body)
		if err == nil {
			err = over.Answered() // no place is left
		}
		if err != nil {
			t.Fatal(err)
		}
		over.Close()

		// What others' decisions take, next to an agent that holds nothing.
		var busy, quiet []time.Duration
		for i := range 400 {
			busy, quiet = append(busy, decide(s, 1000+i)), append(quiet, decide(idle, 1000+i))
		}
		slices.Sort(busy)
		slices.Sort(quiet)
		b, q := busy[len(busy)/2], quiet[len(quiet)/2]
		if b > 4*q {
			t.Errorf("another pool decides in %v, in %v where nothing is held", b, q)
		}
		for i := range 2 * n {
			decide(s, 10_000+i)
		}
		most := max(after, s.Agent.RSS())
		t.Logf("%d held: %.0f MB more, %d bytes each, %.0f MB after %d other decisions; another pool decides in %v, in %v where nothing is held",
			n, float64(after-before)/1e6, (after-before)/n, float64(most-before)/1e6, 2*n, b, q)
		if most-before > 200e6 {
			t.Errorf("holding %d requests takes %d bytes, want at most 200 MB", n, most-before)
		}

		s.Agent.Signal(syscall.SIGTERM)
		for i, q := range held {
			if q == nil {
				continue
			}
			if err := q.Answered(); err != nil {
				t.Errorf("request %d at the end: %v", i, err)
				break
			}
			q.Close()
		}
		<-s.Agent.Ended
	})
}

// holdingSite is a site that holds up to n requests of one pool, and has another
// pool. Neither has a real replica.
func holdingSite(t *testing.T, r rig.Release, n int) *rig.Site {
	s := rig.NewSite(t, r, fmt.Sprintf(`pools:
  %s: {models: [%s], max_requests: 1, replicas: {r1: {address: "127.0.0.1:1"}}, admission: {wait: agent, bands: {all: {ttl: 10m, max_requests: %d}}}}
  other: {models: [other], replicas: {r1: {address: "127.0.0.1:1"}}}
`, rig.Pool, rig.Model, n))
	s.Unhurried()
	return s
}
