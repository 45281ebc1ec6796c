package replay

import (
	"math"
	"os"
	"testing"

	"pointsman/sim"
	"pointsman/sim/trace"
	"pointsman/test/proxies"
)

// openTrace reads the conversation trace, which is not part of the repository.
func openTrace(tb testing.TB) *trace.Trace {
	const path = "../../../shared/traces/mooncake-conversation.jsonl"
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		proxies.Missing(tb, "no trace: %s", path)
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	t, err := trace.Read(f, trace.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// TestTraceHitRate: one cache has the hit rate that the publishers of the trace
// and of the policy comparison report. Only the order of requests matters.
func TestTraceHitRate(t *testing.T) {
	tr := openTrace(t)
	for _, c := range []struct {
		cache    int
		min, max float64
	}{
		{1_000_000, 0.054, 0.056},
		{200_000_000, 0.374 - 0.003, 0.374 + 0.003},
	} {
		e, err := sim.NewEngine(sim.EngineOptions{Profile: sim.Profile70B, BlockSize: tr.BlockTokens, CacheTokens: c.cache})
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range tr.Requests {
			if err := e.Submit(0, &sim.Job{Blocks: call.Blocks, Input: call.Input, Output: 1}); err != nil {
				t.Fatal(err)
			}
			for next, ok := e.Next(); ok; next, ok = e.Next() {
				e.Step(next)
			}
		}
		s := e.Stats()
		rate := float64(s.HitTokens) / float64(s.QueryTokens)
		t.Logf("%d tokens of cache: hit rate %.4f", c.cache, rate)
		if rate < c.min || rate > c.max {
			t.Errorf("%d tokens of cache: hit rate %.4f, want %.4f to %.4f", c.cache, rate, c.min, c.max)
		}
	}
}

// TestTraceAnchors reproduces the comparison's figures: the saturation of round
// robin, its times, and those of one shared cache with one queue.
func TestTraceAnchors(t *testing.T) {
	skipIfShort(t)
	tr := openTrace(t)
	saturation, err := Saturation(tr, published)
	if err != nil {
		t.Fatal(err)
	}
	if saturation < 0.9*4.67 || saturation > 1.1*4.67 {
		t.Errorf("saturation at %.2f requests/s, want 4.67 ± 10 %%", saturation)
	}
	for _, c := range []struct {
		name      string
		run       func(*trace.Trace, Options) (*Result, error)
		load, p90 float64
	}{
		{"round robin", Run, 0.85, 47.3},
		{"round robin", Run, 0.95, 94.0},
		{"shared cache", RunShared, 0.85, 4.18},
		{"shared cache", RunShared, 0.95, 5.53},
	} {
		r, err := c.run(tr, Options{Setup: published, Rate: c.load * 4.67, Seed: 1, Policy: roundRobin})
		if err != nil {
			t.Fatal(err)
		}
		p90 := Quantile(r.TTFT, 0.9).Seconds()
		t.Logf("%s, load %.2f: p90 %.2f s, hit rate %.4f", c.name, c.load, p90, r.HitRate)
		if math.Abs(p90/c.p90-1) > 0.1 {
			t.Errorf("%s, load %.2f: p90 of the time to first token %.2f s, want %.2f ± 10 %%", c.name, c.load, p90, c.p90)
		}
		if len(r.TTFT) != len(tr.Requests) {
			t.Errorf("%d served of %d", len(r.TTFT), len(tr.Requests))
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	tr := openTrace(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(tr, Options{Setup: published, Rate: 4, Seed: 1, Policy: leastRequests}); err != nil {
			b.Fatal(err)
		}
	}
}
