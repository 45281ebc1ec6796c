package replay

import (
	"slices"
	"testing"
	"time"

	"pointsman/sim/trace"
)

// TestRunBound: no policy goes below the bound, at any percentile, and a single
// request alone reaches it.
func TestRunBound(t *testing.T) {
	tr := smallTrace(300)
	o := smallOptions()
	o.Speeds = []float64{0.5, 1}
	bound, err := RunBound(tr, o)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := RunShared(tr, o)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := Run(tr, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Result{shared, policy} {
		if len(r.TTFT) != len(bound.TTFT) || len(r.TPOT) != len(bound.TPOT) {
			t.Fatalf("%d and %d served", len(r.TTFT), len(bound.TTFT))
		}
		for i := range r.TTFT {
			if r.TTFT[i] < bound.TTFT[i] || r.E2E[i] < bound.E2E[i] {
				t.Fatalf("quantile %d: %v %v, below the bound's %v %v", i, r.TTFT[i], r.E2E[i], bound.TTFT[i], bound.E2E[i])
			}
		}
		for i := range r.TPOT {
			if r.TPOT[i] < bound.TPOT[i] {
				t.Fatalf("quantile %d: TPOT %v, below the bound's %v", i, r.TPOT[i], bound.TPOT[i])
			}
		}
		if r.HitRate > bound.HitRate || r.Goodput > bound.Goodput {
			t.Errorf("hit rate %v, goodput %v; bound: %v, %v", r.HitRate, r.Goodput, bound.HitRate, bound.Goodput)
		}
	}
	o.Speeds = nil
	one := &trace.Trace{BlockTokens: 64, Requests: tr.Requests[5:6]}
	bound, _ = RunBound(one, o)
	policy, _ = Run(one, o)
	if !slices.Equal(bound.TTFT, policy.TTFT) || !slices.Equal(bound.E2E, policy.E2E) || len(bound.TTFT) != 1 {
		t.Errorf("alone: %v %v, bound %v %v", policy.TTFT, policy.E2E, bound.TTFT, bound.E2E)
	}
	// What no replica can hold is refused here too.
	tr.Requests[7].Input = 1 << 20
	if bound, err = RunBound(tr, o); err != nil || bound.Refused != 1 || len(bound.TTFT) != 299 {
		t.Errorf("%d refused: %v", bound.Refused, err)
	}
}

// TestTraceBound: the bound on the conversation trace is the published one.
func TestTraceBound(t *testing.T) {
	r, err := RunBound(openTrace(t), Options{Setup: published, Rate: 4, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if p90 := Quantile(r.TTFT, 0.9); p90 < 2330*time.Millisecond || p90 > 2430*time.Millisecond {
		t.Errorf("p90 of the time to first token %v, want 2.38 s", p90)
	}
}
