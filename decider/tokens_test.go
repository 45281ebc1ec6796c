package decider

import (
	"testing"
	"time"
)

// The pool compares blocks of the size that most of its engines have, whatever is
// configured, and follows a change of either.
func TestBlockSizeIsThatOfTheEngines(t *testing.T) {
	policyOf := func(blockTokens int) Policy {
		o := TokenDefaults
		o.BlockTokens = blockTokens
		k, err := NewKVAware(o)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	d := New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	apply := func(blockTokens int, key string) {
		d.Apply(Config{Pools: []PoolConfig{{Name: "a", Policy: policyOf(blockTokens), PolicyKey: key, Replicas: replicas(3)}}})
	}
	apply(16, "16")
	p := d.Pool("a")
	want := func(what string, n int) {
		t.Helper()
		if got := p.Tokens().BlockTokens; got != n || p.view.BlockTokens != n || p.config.BlockTokens != n || p.caches.blockTokens != n {
			t.Errorf("%s: blocks of %d tokens, the view has %d, the configuration %d, the caches %d, want %d", what, got, p.view.BlockTokens, p.config.BlockTokens, p.caches.blockTokens, n)
		}
	}
	metrics := func(replica string, n int) { p.Engine(replica).Signals(Signals{BlockTokens: n}) }
	want("as configured", 16)
	follower := p.Engine("r0").FollowBlocks()
	metrics("r0", 32)
	want("one engine's metrics", 32)
	if p.Engine("r0").ChangeBlocks(follower, nil) {
		t.Error("a cache of blocks of another size is still followed")
	}
	metrics("r1", 64)
	want("as many have another", 32)
	metrics("r2", 64)
	want("most have another", 64)
	for _, n := range []int{1, 1 << 20, 0, -1} {
		metrics("r0", n)
		metrics("r1", n)
		metrics("r2", n)
	}
	want("nonsense", 64)
	if n := p.Engine("r2").BlockTokens(48); n != 32 && n != 48 && n != 64 {
		t.Errorf("its events: %d", n)
	}
	p.Engine("r1").BlockTokens(48)
	want("events", 48)
	metrics("r1", 64)
	metrics("r2", 64)
	want("metrics that say otherwise than events", 48)
	apply(16, "16")
	want("a reload", 48)
	apply(128, "128")
	want("a reload with another size", 48)
	d.Apply(Config{Pools: []PoolConfig{{Name: "b", Policy: policyOf(16), PolicyKey: "16", Replicas: replicas(3)}}})
	p = d.Pool("b")
	want("another pool", 16)
	d.Apply(Config{Pools: []PoolConfig{{Name: "b", Policy: policyOf(128), PolicyKey: "128", Replicas: replicas(3)}}})
	want("a reload where no engine reports", 128)
}
