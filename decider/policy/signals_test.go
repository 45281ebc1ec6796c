package policy

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// Whatever engines report, and however long ago, a replica is chosen.
func TestNoSignalStopsADecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]decider.Policy{LeastWork{}, must(NewWeighted(WeightedDefaults)), ThroughputAware{}}).Draw(t, "policy")
		p := decidertest.New(policy, 3)
		for range 20 {
			p.Clock.Advance(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "pause")))
			e := p.Engine(rapid.SampledFrom([]string{"r0", "r1", "r2", "none"}).Draw(t, "replica"))
			e.Signals(decider.Signals{
				Waiting: rapid.Int().Draw(t, "waiting"), Running: rapid.Int().Draw(t, "running"),
				KVUsage:     rapid.SampledFrom([]float64{0, 1, -1, 1e300, math.NaN(), math.Inf(1)}).Draw(t, "usage"),
				Throughput:  rapid.Float64().Draw(t, "throughput"),
				CacheTokens: rapid.IntRange(-5, 1_000_000).Draw(t, "cache"),
			})
			e.FirstTokens(rapid.IntRange(-3, 100).Draw(t, "firsts"))
			e.Prompts(rapid.Int().Draw(t, "tokens"), rapid.Int().Draw(t, "queries"), rapid.Int().Draw(t, "hits"))
			if d, _ := p.Send(); d.Server == "" {
				t.Fatal("no replica was chosen")
			}
		}
	})
}
