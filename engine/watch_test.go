package engine

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/engine/metrics"
)

// The connection to a replica is closed when the replica leaves the pool.
func TestClosesConnectionsOfRemovedReplicas(t *testing.T) {
	var open atomic.Int32
	var all sync.WaitGroup
	defer all.Wait()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Add(1)
			all.Go(func() {
				defer open.Add(-1)
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\nvllm:num_requests_running 2")
				}
			})
		}
	})
	d, w := listen(t, []string{l.Addr().String()}, PoolOptions{})
	replicas := func(list ...decider.ReplicaConfig) {
		d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: policy.LeastWork{}, Replicas: list}}})
	}
	for range 2 {
		until(t, "a connection", func() bool { return open.Load() == 1 })
		replicas()
		until(t, "no connection", func() bool { return open.Load() == 0 && len(w.Status()) == 0 })
		replicas(decider.ReplicaConfig{Name: "r0", Address: l.Addr().String()})
	}
	w.Configure(nil)
	until(t, "no connection", func() bool { return open.Load() == 0 && len(w.Status()) == 0 })
}

// Engines whose metrics are off are not scraped.
func TestMetricsOff(t *testing.T) {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: policy.LeastWork{}, Replicas: []decider.ReplicaConfig{{Name: "r0", Address: "127.0.0.1:1"}}}}})
	w := NewWatch(d, vm.NewSet(), slog.New(slog.DiscardHandler))
	for path, want := range map[string]int{"off": 0, "": 1} {
		w.Configure(map[string]PoolOptions{"llama": {Kind: metrics.VLLM, Metrics: path}})
		w.check(t.Context())
		if n := len(w.Status()); n != want {
			t.Errorf("metrics %q: %d replicas are scraped, want %d", path, n, want)
		}
	}
}
