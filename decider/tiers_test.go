package decider

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider/kvcache"
)

// What is worth as many tokens on the GPU costs the same, whatever the prompt; it is
// never more than what is there, and no less than nothing.
func TestWorthOfTiers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l loadEstimate
		for k := range l.tiers {
			l.tiers[k] = rateEstimator{amount: rapid.Float64Range(0, 1e8).Draw(t, "amount"), seconds: rapid.Float64Range(0, 100).Draw(t, "seconds")}
		}
		r := new(Replica)
		input := rapid.IntRange(-1, 300_000).Draw(t, "input")
		gpu := rapid.IntRange(0, 20_000).Draw(t, "gpu")
		slow := kvcache.Slow{int32(rapid.IntRange(0, 20_000).Draw(t, "cpu")), int32(rapid.IntRange(0, 20_000).Draw(t, "disk"))}
		fast := max(0, min(16*gpu, input-1))
		all := max(0, min(16*(gpu+int(slow.Sum())), input-1))
		tokens := slowTokens(input, gpu, slow, 16)
		if fast+tokens[0]+tokens[1] != all {
			t.Fatalf("%d and %v are not %d", fast, tokens, all)
		}
		worth := l.worth(r, input, gpu, slow, 16)
		if worth < 0 || worth > all {
			t.Fatalf("worth %d of %d", worth, all)
		}
		if all == fast {
			if worth != fast {
				t.Fatalf("worth %d without slow tiers, want %d", worth, fast)
			}
			return
		}
		want := prefillCost(input-all, input) + l.tiers.seconds(tokens)*l.speedOf(r)
		got := prefillCost(input-worth, input)
		if step := prefillCost(1, input) + 1; worth > 0 && math.Abs(got-want) > step {
			t.Fatalf("costs %v, want %v within %v", got, want, step)
		}
	})
}

// The transfer speed follows first tokens that a transfer was most of, within bounds, and
// such first tokens do not teach the prefill speed.
func TestTransferSpeedIsLearned(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1, func(c *PoolConfig) { c.CacheTokens, c.CPUCacheTokens = 64*testBlock, 64_000*testBlock })
	for k := range 200 {
		d, id := decide(p, document(k, 40, 10))
		clock.now += time.Duration(prefillCost(40*testBlock+10, 40*testBlock+10) / initialSpeed * 1e9)
		serve(p, id, d.Server)
	}
	before := p.load.poolSpeed()
	again := func(rounds int, tokensPerSecond float64) {
		for n := range rounds {
			d, id := decide(p, document(n%150, 40, 10))
			clock.now += time.Duration(40 * testBlock / tokensPerSecond * 1e9)
			serve(p, id, d.Server)
		}
	}
	again(600, 20_000)
	if got := p.load.tiers.of(0); got < 17_000 || got > 25_000 {
		t.Errorf("learned %.0f tokens/s, want about 20000", got)
	}
	if after := p.load.poolSpeed(); math.Abs(after/before-1) > 0.1 {
		t.Errorf("transfers took the prefill speed from %.0f to %.0f", before, after)
	}
	again(1, 0.01)
	if got := p.load.tiers.of(0); got < 10_000 {
		t.Errorf("one stall took the speed to %.0f", got)
	}
	for range 10_000 {
		p.load.tiers[0].add(1e6, 1e6, p.load.tiers.of(0))
	}
	if got := p.load.tiers.of(0); got < initialTransfer[0]/transferRange {
		t.Errorf("the speed fell to %v", got)
	}
}

// Without slower tiers nothing is kept or looked up.
func TestNoTiersNoCost(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 2)
	d, id := decide(p, document(1, 8, 0))
	serve(p, id, d.Server)
	if p.caches.model.Tiered() || p.view.tiered || p.view.worth != nil {
		t.Error("tiers are kept without any")
	}
}
