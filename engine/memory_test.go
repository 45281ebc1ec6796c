package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/engine/kvevents"
	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// The agent's next life knows an engine's cache from the events of this one, with the size
// of its blocks, before the engine has sent anything; also if that life ends before it has
// followed anything. It knows nothing of another engine with the same name.
func TestEventsAreRemembered(t *testing.T) {
	port := proxies.FreePorts(t, 3)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	l := proxies.Listen(t, address)
	s := fakevllm.New(fakevllm.Options{
		Name: "r0", BlockSize: 32, CacheTokens: 64_000, EventForm: fakevllm.KVEventsOptions{Keep: 2},
		Events: fmt.Sprintf("tcp://127.0.0.1:%d", port+1), Replay: fmt.Sprintf("tcp://127.0.0.1:%d", port+2),
	})
	if err := s.Publish(); err != nil {
		t.Fatal(err)
	}
	server := s.HTTPServer()
	go server.Serve(l)
	o := PoolOptions{Metrics: "off", Events: EventOptions{Port: port + 1, Replay: port + 2}}
	start := time.Now()
	life := func(address string, memory []byte) (w *Watch, d *decider.Decider, run func() (end func())) {
		d = decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 })
		d.Secret = []byte("the same in each life")
		d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Models: []string{"fake"}, Policy: kvAware(16),
			Replicas: []decider.ReplicaConfig{{Name: "r0", Address: address}}}}})
		w = NewWatch(d, vm.NewSet(), slog.New(slog.DiscardHandler))
		w.Configure(map[string]PoolOptions{"llama": o})
		if memory != nil {
			w.Restore(memory)
		}
		return w, d, func() func() {
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { w.Run(ctx); close(done) }()
			return func() { stop(); <-done }
		}
	}
	known := func(w *Watch) kvevents.Status {
		if s := w.Status(); len(s) == 1 && s[0].Blocks != nil {
			return *s[0].Blocks
		}
		return kvevents.Status{}
	}

	w, _, run := life(address, nil)
	end := run()
	until(t, "the engine is followed", func() bool { return known(w).Online == 1 })
	for i := range 8 {
		post(t, "http://"+address+"/v1/chat/completions", fmt.Sprintf(`{"model":"fake","max_tokens":4,"messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat("word ", 500)))
	}
	until(t, "its blocks are known", func() bool { return known(w).Blocks >= 8*500/32 && known(w).Orphans == 0 })
	blocks := known(w).Blocks
	memory := w.Snapshot()
	end()
	server.Close()
	s.Close() // the engine is gone: nobody else can tell

	never, _, _ := life(address, memory)
	memory = never.Snapshot()
	w, d, run := life(address, memory)
	end = run()
	until(t, "its blocks are remembered", func() bool { return known(w).Blocks == blocks })
	if n := d.Pool("llama").Tokens().BlockTokens; n != 32 {
		t.Errorf("blocks of %d tokens are compared", n)
	}
	end()

	w, _, run = life(fmt.Sprintf("127.0.0.1:%d", port+1), memory)
	end = run()
	until(t, "another engine is followed", func() bool { return len(w.Status()) == 1 })
	if n := known(w).Blocks; n != 0 {
		t.Errorf("of another engine %d blocks are remembered", n)
	}
	end()

	for _, damaged := range [][]byte{memory[:len(memory)/2], append(memory[:40:40], memory[41:]...), {255, 255, 255}} {
		w, _, _ := life(address, damaged)
		w.check(t.Context())
		if n := known(w).Blocks; n > blocks {
			t.Errorf("%d blocks are remembered from damaged memory", n)
		}
		w.stopOthers(nil, nil)
		w.running.Wait()
	}
}
