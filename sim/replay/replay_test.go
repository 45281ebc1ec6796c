package replay

import (
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider"
	"pointsman/decider/queue"
	"pointsman/sim"
	"pointsman/sim/trace"
)

func roundRobin() (decider.Policy, error)    { return &decider.RoundRobin{}, nil }
func leastRequests() (decider.Policy, error) { return decider.LeastRequests{}, nil }

// smallTrace is n requests with prompts that share beginnings.
func smallTrace(n int) *trace.Trace {
	t := &trace.Trace{BlockTokens: 64}
	for i := range n {
		c := trace.Request{At: time.Duration(i) * 200 * time.Millisecond, Input: 64 + i*37%900, Output: 1 + i*13%60, HasSession: i%3 > 0, Stream: i%4 > 0, Session: uint64(i % 7)}
		for k := range c.Input / t.BlockTokens {
			c.Blocks = append(c.Blocks, trace.Hash(uint64(k*100+i%(1+3*k))))
		}
		c.Visible, c.Estimate = c.Blocks, c.Input
		t.Requests = append(t.Requests, c)
	}
	return t
}

func smallOptions() Options {
	return Options{
		Setup: Setup{Replicas: 4, Profile: sim.Profile8B, CacheTokens: 4096},
		Rate:  40, Seed: 1, Policy: leastRequests, PolicyName: "least_requests",
	}
}

// Equal arguments give equal results, alone and beside others.
func TestReplayRepeats(t *testing.T) {
	tr := smallTrace(300)
	o := smallOptions()
	o.FeedbackDelay, o.TokenNoise, o.MirrorScale, o.Agents, o.Speeds = 30*time.Millisecond, 0.2, 2, 3, []float64{1, 0.5}
	o.Failures = []Failure{{At: 3 * time.Second, Replica: 2}}
	results := make([]*Result, 6)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() {
			o := o
			o.Seed = uint64(i / 5) // the last one has another seed
			var err error
			if results[i], err = Run(tr, o); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, r := range results[1:5] {
		if !reflect.DeepEqual(r, results[0]) {
			t.Errorf("run %d differs from the first", i+1)
		}
	}
	if reflect.DeepEqual(results[5], results[0]) {
		t.Error("another seed changes nothing")
	}
}

// Every request ends once, whatever happens to replicas and news, and in the
// end the agents hold no reservation.
func TestReplayEndsEveryRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 80).Draw(t, "requests")
		o := smallOptions()
		o.Replicas = rapid.IntRange(1, 5).Draw(t, "replicas")
		o.CacheTokens = rapid.IntRange(300, 3000).Draw(t, "cache")
		o.Rate = rapid.Float64Range(1, 500).Draw(t, "rate")
		o.FeedbackDelay = time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * 250 * time.Millisecond
		o.Agents = rapid.IntRange(1, 3).Draw(t, "agents")
		switch rapid.IntRange(0, 2).Draw(t, "first tokens") {
		case 1:
			o.NoFirstToken = true
		case 2:
			o.Poll, o.Agents = 50*time.Millisecond, 1
		}
		o.Metrics = time.Duration(rapid.IntRange(0, 1).Draw(t, "metrics")) * 100 * time.Millisecond
		if rapid.Bool().Draw(t, "admission") {
			o.Admission = &decider.Admission{Hold: true, FIFO: rapid.Bool().Draw(t, "fifo"), Bands: []queue.Band{
				{Name: "all", Order: queue.Order(rapid.IntRange(0, 2).Draw(t, "order")), TTL: time.Duration(rapid.IntRange(10, 20_000).Draw(t, "ttl")) * time.Millisecond},
			}}
		}
		for range rapid.IntRange(0, 3).Draw(t, "failures") {
			o.Failures = append(o.Failures, Failure{
				At:      time.Duration(rapid.IntRange(0, 3000).Draw(t, "at")) * time.Millisecond,
				Replica: rapid.IntRange(0, o.Replicas-1).Draw(t, "replica"),
			})
		}
		p, err := play(smallTrace(n), &o)
		if err != nil {
			t.Fatal(err)
		}
		r := p.result("")
		if len(r.TTFT)+r.Failed+r.Refused+r.Shed != n || len(r.E2E) != len(r.TTFT) || p.ended != n || p.load.total != 0 {
			t.Fatalf("%d served, %d failed, %d refused of %d; %d in flight", len(r.TTFT), r.Failed, r.Refused, n, p.load.total)
		}
		if len(o.Failures) == 0 && r.Failed > 0 {
			t.Fatalf("%d failed without a failure", r.Failed)
		}
		for i := range p.flights {
			f := &p.flights[i]
			if f.state == flightServed && (f.first < f.at || f.done < f.first || f.job.Generated() != f.call.Output) {
				t.Fatalf("request %d: %+v", i, f)
			}
		}
		for pending := p.news.heap; len(pending) > 0; pending = p.news.heap {
			n := p.news.pop()
			p.now = n.at
			if n.flight != nil {
				p.hear(n)
			}
		}
		for _, a := range p.agents {
			if left := a.pool.Status().Reservations; left != 0 {
				t.Fatalf("%d reservations left", left)
			}
		}
	})
}

// What the agent hears late, it decides by late.
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
		t.Errorf("mean time to first token %v, and %v with news 10 s late", a, b)
	}
}

// A poll tells of the oldest requests of an engine, as many as have begun.
func TestReplayPoll(t *testing.T) {
	o := smallOptions()
	o.Poll = 20 * time.Millisecond
	o.Replicas = 1
	heard := &watcher{}
	o.Policy = func() (decider.Policy, error) { return heard, nil }
	tr := smallTrace(200)
	for i := range tr.Requests {
		tr.Requests[i].Output += 50 // the poll comes before the end
	}
	if _, err := Run(tr, o); err != nil {
		t.Fatal(err)
	}
	if heard.first != 200 || !slices.IsSorted(heard.order) {
		t.Errorf("%d first tokens heard of, in order: %v", heard.first, slices.IsSorted(heard.order))
	}
	o.NoFirstToken = true
	if _, err := Run(smallTrace(2), o); err == nil {
		t.Error("polled for what is not to be heard")
	}
}

// Engines' gauges reach the policy as old as the last look at them.
func TestReplayMetrics(t *testing.T) {
	o := smallOptions()
	o.Metrics = 500 * time.Millisecond
	seen := &reader{}
	o.Policy = func() (decider.Policy, error) { return seen, nil }
	if _, err := Run(smallTrace(200), o); err != nil {
		t.Fatal(err)
	}
	if seen.known == 0 || seen.busy == 0 || seen.oldest > o.Metrics || seen.oldest < o.Metrics/2 {
		t.Errorf("%+v", seen)
	}
}

// reader notes the signals that a policy gets.
type reader struct {
	decider.RoundRobin
	known, busy int
	oldest      time.Duration
}

func (w *reader) Rank(r *decider.Request, v *decider.View, dst []int) []int {
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

// watcher sends all to the first replica and notes the first tokens.
type watcher struct {
	decider.RoundRobin
	first int
	order []string
}

func (w *watcher) Reserved(*decider.Request, int) {}
func (w *watcher) FirstToken(r *decider.Request, _ int) {
	w.first++
	w.order = append(w.order, r.ID.String()[:18])
}
func (w *watcher) Finished(*decider.Request, int, decider.Outcome) {}

// The bound serves every request, in less time than a policy.
func TestReplayShared(t *testing.T) {
	tr := smallTrace(400)
	o := smallOptions()
	saturation, err := Saturation(tr, o.Setup)
	if err != nil {
		t.Fatal(err)
	}
	o.Rate = 0.9 * saturation
	bound, err := RunShared(tr, o)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := Run(tr, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(bound.TTFT) != 400 || Mean(bound.TTFT) > Mean(policy.TTFT) || bound.HitRate < policy.HitRate {
		t.Errorf("bound: %d served, mean %v, hit rate %.3f; least requests: mean %v, hit rate %.3f",
			len(bound.TTFT), Mean(bound.TTFT), bound.HitRate, Mean(policy.TTFT), policy.HitRate)
	}
}

// A dead replica costs its requests, and after that no more.
func TestReplayFailure(t *testing.T) {
	o := smallOptions()
	o.Failures = []Failure{{At: 2 * time.Second, Replica: 1}, {At: 2 * time.Second, Replica: 1}}
	r, err := Run(smallTrace(400), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed == 0 || r.Failed > 20 || len(r.TTFT)+r.Failed != 400 {
		t.Errorf("%d failed, %d served", r.Failed, len(r.TTFT))
	}
}

func TestReplayRefuses(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"replicas": func(o *Options) { o.Replicas = 0 },
		"rate":     func(o *Options) { o.Rate = math.NaN() },
		"failure":  func(o *Options) { o.Failures = []Failure{{Replica: 4}} },
		"noise":    func(o *Options) { o.TokenNoise = 1 },
		"mirror":   func(o *Options) { o.MirrorScale = math.Inf(1) },
		"speed":    func(o *Options) { o.Speeds = []float64{0} },
		"cache":    func(o *Options) { o.CacheTokens = 1 },
		"poll":     func(o *Options) { o.Poll = 1 },
		"metrics":  func(o *Options) { o.Metrics = -1 },
		"delay":    func(o *Options) { o.FeedbackDelay = -1 },
		"agents":   func(o *Options) { o.Agents = -1 },
	} {
		o := smallOptions()
		change(&o)
		if _, err := Run(smallTrace(1), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Below the saturation queues stay short, above they grow with the trace.
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
		t.Error("nothing fits, yet a rate")
	}
}

// The order alone counts: one cache finds what the publishers of the trace and
// of the policy comparison found.
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

// published is the setup whose figures a policy comparison published.
var published = Setup{Replicas: 8, Profile: sim.Profile70B, CacheTokens: 500_000}

// The anchors of that comparison come out: where round robin saturates, its
// times, and those of one shared cache with one queue.
func TestTraceAnchors(t *testing.T) {
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

// An engine's count of first tokens, looked at ten times a second, is as good as
// the proxy's word, and what engines say of their blocks as good as prediction.
func TestSignalsOfEnginesAreAsGood(t *testing.T) {
	tr := openTrace(t)
	if testing.Short() {
		t.Skip("seconds")
	}
	setup := Setup{Replicas: 8, Profile: sim.Profile70B, CacheTokens: 500_000}
	most, err := Saturation(tr, setup)
	if err != nil {
		t.Fatal(err)
	}
	run := func(change func(*Options)) (mean float64) {
		const seeds = 3
		for seed := range uint64(seeds) {
			o := Options{Setup: setup, Rate: .85 * most, Seed: seed + 1, MirrorScale: 1, PolicyName: "test",
				Policy: func() (decider.Policy, error) { return decider.LeastWork{}, nil }}
			change(&o)
			r, err := Run(tr, o)
			if err != nil {
				t.Fatal(err)
			}
			mean += p90(r.TTFT) / seeds
		}
		return mean
	}
	told := run(func(*Options) {})
	polled := run(func(o *Options) { o.Poll = 100 * time.Millisecond })
	exact := run(func(o *Options) {
		o.Policy = func() (decider.Policy, error) { return decider.NewKVAware(decider.TokenDefaults) }
	})
	t.Logf("p90 of the time to first token: %.2f s told by the proxy, %.2f s counted by the engines, %.2f s with their KV-cache events", told, polled, exact)
	if polled > 1.05*told {
		t.Errorf("%.2f s with first tokens counted every 100 ms, %.2f s with them told", polled, told)
	}
	if exact > 1.05*told { // three seeds still move it by 2 %
		t.Errorf("%.2f s with KV-cache events, %.2f s without", exact, told)
	}
}
