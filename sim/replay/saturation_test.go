package replay

import (
	"math"
	"testing"
	"time"

	"pointsman/sim/trace"
)

// TestSaturation: below saturation queues stay short, above it they grow with
// the trace.
func TestSaturation(t *testing.T) {
	short, long := smallTrace(2000), smallTrace(4000)
	o := smallOptions()
	o.Policy = roundRobin
	saturation, err := Saturation(long, o.Setup)
	if err != nil {
		t.Fatal(err)
	}
	last := func(tr *trace.Trace, load float64) time.Duration {
		o.Rate = load * saturation
		r, err := Run(tr, o)
		if err != nil {
			t.Fatal(err)
		}
		return Quantile(r.TTFT, 0.99)
	}
	if below := last(long, 0.8); below > 5*time.Second {
		t.Errorf("at 0.8 of %.1f requests/s, p99 %v", saturation, below)
	}
	if a, b := last(short, 1.3), last(long, 1.3); float64(b) < 1.7*float64(a) {
		t.Errorf("at 1.3 of %.1f requests/s, p99 %v of 2,000 and %v of 4,000 requests", saturation, a, b)
	}
	slow := o.Setup
	slow.Speeds = []float64{1, 0.5}
	if s, err := Saturation(long, slow); err != nil || math.Abs(s/saturation-0.75) > 0.02 {
		t.Errorf("%.1f requests/s with half of the replicas half as fast, %.1f without: %v", s, saturation, err)
	}
	if _, err := Saturation(&trace.Trace{BlockTokens: 64, Requests: []trace.Request{{Input: 1 << 20, Output: 1}}}, o.Setup); err == nil {
		t.Error("a rate, although no request fits")
	}
}
