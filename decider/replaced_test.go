package decider

import (
	"slices"
	"testing"
)

// What an engine has reported does not count for another one: of another kind at the same
// address, or at another address under the same name.
func TestAReplacedEngineIsUnknown(t *testing.T) {
	configured := func(p *Pool, address string) {
		c := p.config
		c.Replicas = slices.Clone(c.Replicas)
		c.Replicas[0].Address = address
		p.configure(c)
	}
	for name, c := range map[string]struct {
		kept   bool
		change func(*Pool)
	}{
		"another kind":          {false, func(p *Pool) { p.Engine("r0").Replaced() }},
		"another address":       {false, func(p *Pool) { configured(p, "10.9.9.9:1") }},
		"the same address":      {true, func(p *Pool) { configured(p, "10.0.0.1:1") }},
		"another replica's":     {true, func(p *Pool) { p.Engine("r1").Replaced(); p.Engine("none").Replaced() }},
		"found elsewhere":       {false, func(p *Pool) { found(p, "10.9.9.9:1") }},
		"found where it was":    {true, func(p *Pool) { found(p, "10.0.0.1:1") }},
		"found without address": {true, func(p *Pool) { found(p, "") }},
	} {
		p, _ := newTestPool(LeastWork{}, 2, func(c *PoolConfig) {
			c.CacheTokens, c.LoRASlots, c.Discover = 5000, 1, true
			c.Replicas[0].Address = "10.0.0.1:1"
		})
		r := p.replicas[0]
		e := p.Engine("r0")
		e.Signals(Signals{Running: 3, CacheTokens: 70_000, BlockTokens: 32})
		e.BlockTokens(32)
		e.ContextTokens(9000)
		e.listAdapters([]string{"sql"})
		e.AdaptersLoaded([]string{"sql"}, 4)
		d, id := decide(p, func(r *Request) {
			r.Blocks, r.Input, r.Stream, r.Exclude = []uint64{1, 2, 3}, 800, true, "r1"
		})
		p.FirstToken(id, []byte(d.Server))
		p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
		if d.Server != "r0" || r.cache.Match([]uint64{1, 2, 3}) != 3 {
			t.Fatalf("%s: at %s, %d blocks", name, d.Server, r.cache.Match([]uint64{1, 2, 3}))
		}
		c.change(p)
		type known struct {
			blocks, cache, context, slots, block, running int
			lists, loaded                                 bool
		}
		got := known{r.cache.Match([]uint64{1, 2, 3}), r.cacheTokens, p.Bounds().Context, r.adapters.slots, r.blockTokens, r.signals.Running, r.lists != nil, r.HasLoRA("sql")}
		want := known{3, 70_000, 9000, 4, 32, 3, true, true}
		if !c.kept {
			want = known{0, 5000, 5000, 1, 0, 0, false, false} // without a context length, the cache bounds it
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// found reports the replicas of p, of which the first is not listed, but found at an address.
func found(p *Pool, address string) {
	p.replicas[0].listed = false
	p.Discovered([]ReplicaState{{Name: "r0", Address: address, Up: true, Weight: 1}, {Name: "r1", Address: "10.0.0.2:1", Up: true, Weight: 1}})
}

// An engine that no longer lists its models has no adapters that are known.
func TestModelsUnknown(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 1)
	changes := 0
	d := &Decider{AdaptersChanged: func() { changes++ }}
	p.Engine("r0").ContextTokens(9000)
	d.Adapters(p, "r0", []string{"sql"})
	for range 2 {
		d.ModelsUnknown(p, "r0")
	}
	d.ModelsUnknown(p, "none")
	if r := p.replicas[0]; r.lists != nil || r.contextTokens != 0 || p.Bounds().Known || changes != 2 {
		t.Errorf("lists %v, context %d, %+v, %d changes", r.lists, r.contextTokens, p.Bounds(), changes)
	}
}
