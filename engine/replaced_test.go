package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// An engine that is upgraded behind its address is asked again for what was learned once,
// long before its list of models is due.
func TestAnUpgradedEngineIsAskedAgain(t *testing.T) {
	l := proxies.Listen(t, rig.FreeAddress(t))
	address := l.Addr().String()
	serve := func(o fakevllm.Options) (stop func()) {
		s := fakevllm.New(o)
		server := s.HTTPServer()
		go server.Serve(l)
		return func() { server.Close(); s.Close() }
	}
	start := time.Now()
	d := decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Models: []string{"fake"}, Policy: policy.LeastWork{}, Replicas: []decider.ReplicaConfig{{Name: "r0", Address: address}},
	}}})
	w := NewWatch(d, vm.NewSet(), slog.New(slog.DiscardHandler))
	w.Configure(map[string]PoolOptions{"llama": {}})
	var replaced atomic.Pointer[string]
	w.MaybeReplaced = func(address string, _ bool) { replaced.Store(&address) }
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	defer func() { end(); <-done }()

	pool := d.Pool("llama")
	stop := serve(fakevllm.Options{LoRA: []string{"old"}, MaxModelLen: 9000})
	until(t, "what the first engine has", func() bool {
		return slices.Equal(pool.ListedAdapters(), []string{"old"}) && pool.Bounds().Context == 9000
	})
	if replaced.Load() != nil {
		t.Error("the first engine is called another")
	}
	stop()
	until(t, "that it is down", func() bool { s := w.Status(); return len(s) == 1 && s[0].Error != "" })
	l = proxies.Listen(t, address)
	upgraded := time.Now()
	defer serve(fakevllm.Options{LoRA: []string{"new"}, MaxModelLen: 3000})()
	until(t, "what the second engine has", func() bool {
		return slices.Equal(pool.ListedAdapters(), []string{"new"}) && pool.Bounds().Context == 3000
	})
	if took := time.Since(upgraded); took > 20*time.Second {
		t.Errorf("asked again after %v", took)
	}
	if a := replaced.Load(); a == nil || *a != address {
		t.Errorf("maybe replaced: %v, want %s", a, address)
	}
}
