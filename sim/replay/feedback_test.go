package replay

import (
	"slices"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/sim"
)

// TestReplayFeedback: delayed reports make decisions worse.
func TestReplayFeedback(t *testing.T) {
	tr := smallTrace(400)
	o := smallOptions()
	saturation, err := Saturation(tr, o.Setup)
	if err != nil {
		t.Fatal(err)
	}
	o.Rate = 0.9 * saturation
	now, err := Run(tr, o)
	if err != nil {
		t.Fatal(err)
	}
	o.FeedbackDelay = 10 * time.Second
	late, err := Run(tr, o)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := Mean(now.TTFT), Mean(late.TTFT); a >= b {
		t.Errorf("mean time to first token %v, and %v with reports delayed by 10 s", a, b)
	}
}

// TestReplayPoll: polled first tokens are those of the oldest requests.
func TestReplayPoll(t *testing.T) {
	o := smallOptions()
	o.Poll = 20 * time.Millisecond
	o.Replicas = 1
	seen := &firstTokenReader{}
	o.Policy = func() (decider.Policy, error) { return seen, nil }
	tr := smallTrace(200)
	for i := range tr.Requests {
		tr.Requests[i].Output += 50 // the poll comes before the end
	}
	if _, err := Run(tr, o); err != nil {
		t.Fatal(err)
	}
	if seen.first != 200 || !slices.IsSorted(seen.order) {
		t.Errorf("%d first tokens reported, in order: %v", seen.first, slices.IsSorted(seen.order))
	}
	o.NoFirstToken = true
	if _, err := Run(smallTrace(2), o); err == nil {
		t.Error("accepted polling together with NoFirstToken")
	}
}

// TestReplayMetrics: a policy sees the gauges of the last scrape.
func TestReplayMetrics(t *testing.T) {
	o := smallOptions()
	o.Metrics = 500 * time.Millisecond
	seen := &signalReader{}
	o.Policy = func() (decider.Policy, error) { return seen, nil }
	if _, err := Run(smallTrace(200), o); err != nil {
		t.Fatal(err)
	}
	if seen.known == 0 || seen.busy == 0 || seen.oldest > o.Metrics || seen.oldest < o.Metrics/2 {
		t.Errorf("%+v", seen)
	}
}

// signalReader records the signals that a policy sees.
type signalReader struct {
	policy.RoundRobin
	known, busy int
	oldest      time.Duration
}

// firstTokenReader records the first tokens that a policy sees.
type firstTokenReader struct {
	policy.RoundRobin
	first int
	order []string
}

// TestEngineSignalsSuffice: polling the engines' first-token counts ten times a
// second is as good as the proxy's reports, and KV-cache events are as good as
// the cache model.
func TestEngineSignalsSuffice(t *testing.T) {
	skipIfShort(t)
	tr := openTrace(t)
	setup := Setup{Replicas: 8, Profile: sim.Profile70B, CacheTokens: 500_000}
	most, err := Saturation(tr, setup)
	if err != nil {
		t.Fatal(err)
	}
	run := func(change func(*Options)) (mean float64) {
		const seeds = 3
		for seed := range uint64(seeds) {
			o := Options{Setup: setup, Rate: .85 * most, Seed: seed + 1, CacheScale: 1, PolicyName: "test",
				Policy: func() (decider.Policy, error) { return policy.LeastWork{}, nil }}
			change(&o)
			r, err := Run(tr, o)
			if err != nil {
				t.Fatal(err)
			}
			mean += p90(r.TTFT) / seeds
		}
		return mean
	}
	reported := run(func(*Options) {})
	polled := run(func(o *Options) { o.Poll = 100 * time.Millisecond })
	exact := run(func(o *Options) {
		o.Policy = func() (decider.Policy, error) { return policy.NewKVAware(decider.TokenDefaults) }
	})
	t.Logf("p90 of the time to first token: %.2f s reported by the proxy, %.2f s polled from the engines, %.2f s with KV-cache events", reported, polled, exact)
	if polled > 1.05*reported {
		t.Errorf("%.2f s with first tokens polled every 100 ms, %.2f s with first tokens reported", polled, reported)
	}
	if exact > 1.05*reported { // three seeds still vary by 2 %
		t.Errorf("%.2f s with KV-cache events, %.2f s without", exact, reported)
	}
}

func (w *firstTokenReader) Reserved(*decider.Request, int) {}

func (w *firstTokenReader) Finished(*decider.Request, int, decider.Outcome) {}

func (w *firstTokenReader) FirstToken(r *decider.Request, _ int) {
	w.first++
	w.order = append(w.order, r.ID.String()[:18])
}

func (w *signalReader) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	for _, replica := range v.Replicas {
		s := replica.Signals()
		if !s.Known {
			continue
		}
		w.known++
		w.oldest = max(w.oldest, v.Now-s.At)
		if s.Running > 0 && s.KVUsage > 0 {
			w.busy++
		}
	}
	return w.RoundRobin.Rank(r, v, dst)
}
