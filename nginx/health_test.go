package nginx

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
)

// A replica that does not answer well is down until it does, and until nobody
// asks any more.
func TestHealth(t *testing.T) {
	var code atomic.Int64
	code.Store(200)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/ping" || r.Method != "GET" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(int(code.Load()))
	}))
	defer server.Close()
	d := newDecider()
	address := server.Listener.Addr().String()
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: &policy.RoundRobin{}, Replicas: []decider.ReplicaConfig{
		{Name: "r1", Address: address}, {Name: "r2", Address: "127.0.0.1:1"},
	}}}})
	await := func(replicaName, state string) {
		t.Helper()
		eventually(t, replicaName+" "+state, func() bool { return replica(d, "llama", replicaName).State == state })
	}
	h := &Health{Pool: "llama", Path: "/ping", Poll: 10 * time.Millisecond, Decider: d, Log: silent}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { h.Run(ctx); close(done) }()
	await("r2", "down") // it refuses connections
	await("r1", "up")
	code.Store(503)
	await("r1", "down")
	before := asked.Load()
	code.Store(204)
	await("r1", "up")
	if n := asked.Load() - before; n < rise {
		t.Errorf("up again after %d answers, want %d", n, rise)
	}
	code.Store(500)
	await("r1", "down")
	cancel()
	<-done
	await("r1", "up")
	await("r2", "up")
}

func TestFallAndRise(t *testing.T) {
	var s replicaCheck
	for i, step := range []struct{ well, down bool }{
		{false, false}, {false, false}, {true, false}, {false, false}, {false, false}, {false, true},
		{true, true}, {false, true}, {true, true}, {true, false},
	} {
		s.answered = step.well
		if s.count(); s.down != step.down {
			t.Errorf("answer %d: down %v", i, s.down)
		}
	}
}
