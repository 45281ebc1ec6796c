package rig

import (
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Traffic is good traffic that goes on until it is stopped. Each request has a
// connection of its own: a proxy that is reloaded may close an idle one just as
// a request is sent on it, with or without an agent.
type Traffic struct {
	t       testing.TB
	done    atomic.Int64
	quit    chan struct{}
	clients sync.WaitGroup
	once    sync.Once

	mu     sync.Mutex
	by     map[string]int // requests by the engine that served them
	failed int
}

// StartTraffic starts clients that send small requests, streams and plain, to
// host, with a pause between them so that two processors are enough. Each that
// fails fails the test.
func StartTraffic(t testing.TB, host string, clients int) *Traffic {
	return StartTrafficOf(t, host, clients, func(i int) Call { return Small(i%2 == 0) })
}

// StartTrafficOf is startTraffic with the requests that next makes, the i-th of
// a client at a time.
func StartTrafficOf(t testing.TB, host string, clients int, next func(i int) Call) *Traffic {
	tr := &Traffic{t: t, quit: make(chan struct{}), by: map[string]int{}}
	client := NewClient(clients, false, false)
	for n := range clients {
		tr.clients.Go(func() {
			for i := n; ; i++ {
				select {
				case <-tr.quit:
					return
				case <-time.After(5 * time.Millisecond):
				}
				c := next(i)
				a := c.Do(client, host)
				err := c.Check(a)
				tr.mu.Lock()
				tr.by[a.Engine]++
				if err != nil {
					if tr.failed++; tr.failed <= 10 {
						t.Errorf("under load: %v", err)
					}
				}
				tr.mu.Unlock()
				tr.done.Add(1)
			}
		})
	}
	t.Cleanup(func() { tr.Stop() })
	return tr
}

// Stop ends the traffic and returns the number of its requests.
func (tr *Traffic) Stop() int {
	tr.once.Do(func() { close(tr.quit) })
	tr.clients.Wait()
	return int(tr.done.Load())
}

// Servers is how many requests each engine has served so far.
func (tr *Traffic) Servers() map[string]int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return maps.Clone(tr.by)
}

// Await waits until n further requests have been answered. Where the agent has just gone, that is
// longer than the processing timeout, for which HAProxy 2.6 may let all clients wait.
func (tr *Traffic) Await(n int64) {
	tr.t.Helper()
	want := tr.done.Load() + n
	Eventually(tr.t, 20*time.Second, "requests go on being answered", func() (bool, string) {
		return tr.done.Load() >= want, ""
	})
}
