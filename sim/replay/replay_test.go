package replay

import (
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider"
	"pointsman/decider/queue"
)

// TestReplayRepeats: equal arguments give equal results, also concurrently.
func TestReplayRepeats(t *testing.T) {
	tr := smallTrace(300)
	o := smallOptions()
	o.FeedbackDelay, o.TokenNoise, o.CacheScale, o.Agents, o.Speeds = 30*time.Millisecond, 0.2, 2, 3, []float64{1, 0.5}
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
		t.Error("two seeds give the same result")
	}
}

// TestReplayEndsEveryRequest: every request ends once, whatever happens to
// replicas and reports, and then the agents hold no reservation.
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
		if rapid.Bool().Draw(t, "events") {
			k, at := rapid.IntRange(0, o.Replicas-1).Draw(t, "changed"), time.Duration(rapid.IntRange(0, 3000).Draw(t, "change"))*time.Millisecond
			o.Events.Changes = []ReplicaChange{{at, k, ChangeKind(rapid.IntRange(0, 2).Draw(t, "kind")), 0.5}}
			o.Share = time.Duration(rapid.IntRange(0, 50).Draw(t, "share")) * time.Millisecond
		}
		s, err := simulate(smallTrace(n), &o)
		if err != nil {
			t.Fatal(err)
		}
		r := s.result("")
		if len(r.TTFT)+r.Failed+r.Refused+r.Shed != n || len(r.E2E) != len(r.TTFT) || s.ended != n || s.load.total != 0 {
			t.Fatalf("%d served, %d failed, %d refused of %d; %d in flight", len(r.TTFT), r.Failed, r.Refused, n, s.load.total)
		}
		if len(o.Failures) == 0 && r.Failed > 0 {
			t.Fatalf("%d failed without a failure", r.Failed)
		}
		for i := range s.flights {
			f := &s.flights[i]
			if f.state == flightServed && (f.first < f.at || f.done < f.first || f.job.Generated() != f.request.Output) {
				t.Fatalf("request %d: %+v", i, f)
			}
		}
		for s.events.next() < never {
			e := s.events.pop()
			s.now = e.at
			if e.flight != nil || e.shared != nil {
				s.handle(e)
			}
		}
		for _, a := range s.agents {
			if left := a.pool.Status().Reservations; left != 0 {
				t.Fatalf("%d reservations left", left)
			}
		}
	})
}

// TestReplayShared: the bound serves every request, sooner than a policy.
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

// TestReplayFailure: a dead replica loses its requests and no later ones.
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
		"scale":    func(o *Options) { o.CacheScale = math.Inf(1) },
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
