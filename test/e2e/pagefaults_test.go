package e2e

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pointsman/test/rig"
)

// TestBodiesReuseMemory: proxies keep the memory of a body for the next ones. One that gives
// it back to the system gets it again page by page, which takes more processor time than all
// else that a request needs.
func TestBodiesReuseMemory(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 2, "round_robin")
		s.Start()
		const clients, each = 48, 8
		client := rig.NewClient(clients, true, false)
		defer client.CloseIdleConnections()
		body := rig.Chat(rig.Model, 64<<10, 8, false, 7)
		if r.Can.WholeBody {
			body = rig.Chat(rig.Model, 900<<10, 8, false, 7) // 225 pages
		}
		load := func() {
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for range each {
						c := rig.Call{Body: body}
						if err := c.Check(c.Do(client, s.Front)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		}
		load() // until it has the memory
		before := pageFaults(t, s.Proxy.Serving())
		load()
		if each := float64(pageFaults(t, s.Proxy.Serving())-before) / (clients * each); each > 5 {
			t.Errorf("%.1f page faults per request", each)
		}
	})
}

// pageFaults is how often the processes got a page of memory.
func pageFaults(t *testing.T, pids []string) (n int) {
	t.Helper()
	for _, pid := range pids {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(b), ") ")
		faults, err := strconv.Atoi(strings.Fields(after)[7])
		if err != nil {
			t.Fatal(err)
		}
		n += faults
	}
	return n
}
