package replay

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/sim"
	"pointsman/sim/trace"
)

// tickTrace is a trace in which the times, and so the results, depend on the seed.
func tickTrace(n int) *trace.Trace {
	t := smallTrace(n)
	t.Tick = 200 * time.Millisecond
	return t
}

// compare runs a small experiment with these policies.
func compare(t *testing.T, seeds int, policies ...string) *Comparison {
	t.Helper()
	e := Experiment{Options: Options{Setup: smallOptions().Setup, Seed: 1}, Load: 0.8, Seeds: seeds}
	var err error
	if e.Policies, err = ParsePolicies(testPolicies, policies, SharedCache); err != nil {
		t.Fatal(err)
	}
	c, err := e.Run(tickTrace(200), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestExperiment: each policy is replayed with each seed, as by Run.
func TestExperiment(t *testing.T) {
	c := compare(t, 2, "round_robin", SharedCache, "least_work_late")
	if c.Requests != 200 || c.Load() < 0.799 || c.Load() > 0.801 || len(c.Results) != 3 {
		t.Fatalf("%+v", c)
	}
	for i, name := range []string{"round_robin", SharedCache, "least_work_late"} {
		if len(c.Results[i]) != 2 || c.First()[i] != c.Results[i][0] {
			t.Fatalf("%d results of %s", len(c.Results[i]), name)
		}
		for _, r := range c.Results[i] {
			if r.Policy != name || len(r.TTFT) != 200 {
				t.Errorf("%s: %d served by %s", name, len(r.TTFT), r.Policy)
			}
		}
		if reflect.DeepEqual(c.Results[i][0], c.Results[i][1]) {
			t.Errorf("%s: two seeds have the same result", name)
		}
	}
	o := smallOptions()
	o.Rate, o.Seed, o.Policy, o.PolicyName = c.Rate, 2, roundRobin, "round_robin"
	if want, err := Run(tickTrace(200), o); err != nil || !reflect.DeepEqual(c.Results[0][1], want) {
		t.Errorf("the result differs from that of Run: %v", err)
	}
}

func TestExperimentErrors(t *testing.T) {
	policies, err := ParsePolicies(testPolicies, []string{"round_robin"})
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Experiment){
		"at least 1 seed":       func(e *Experiment) { e.Seeds = 0 },
		"a load above 0":        func(e *Experiment) { e.Load = 0 },
		"no negative numbers":   func(e *Experiment) { e.Rate = -1 },
		"0 replicas":            func(e *Experiment) { e.Replicas = 0 },
		"fits into a replica":   func(e *Experiment) { e.CacheTokens = 64 },
		"a cache of 1 tokens":   func(e *Experiment) { e.CacheTokens = 1 },
		"round_robin: 2000 age": func(e *Experiment) { e.Agents = 2000 },
	} {
		e := Experiment{Options: Options{Setup: smallOptions().Setup}, Load: 0.8, Seeds: 1, Policies: policies}
		change(&e)
		if _, err := e.Run(smallTrace(10), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want … %s …", err, want)
		}
	}
}

func TestParseFailures(t *testing.T) {
	got, err := ParseFailures([]string{"60s@3", "0s@0"})
	if want := []Failure{{At: time.Minute, Replica: 3}, {}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
	for _, spec := range []string{"", "60@3", "60s", "60s@x", "-1s@2", "3@60s"} {
		if _, err := ParseFailures([]string{spec}); err == nil || !strings.Contains(err.Error(), "want a time and a replica as 60s@3") {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

// resultOf returns a result with n times to first token: 1 s, 2 s … n s, each
// times factor.
func resultOf(policy string, n int, factor float64) *Result {
	r := &Result{Policy: policy, HitRate: 0.25, Goodput: 0.5, Imbalance: 1}
	for i := range n {
		at := time.Duration(factor * float64(i+1) * float64(time.Second))
		r.TTFT, r.E2E = append(r.TTFT, at), append(r.E2E, 2*at)
	}
	return r
}

func TestComparisonOutput(t *testing.T) {
	c := &Comparison{
		Setup:    Setup{Replicas: 2, Profile: sim.Profile8B, CacheTokens: 1000},
		Requests: 10, Rate: 4, Saturation: 5,
		Results: [][]*Result{{resultOf("random", 10, 1)}, {resultOf("a", 10, 2)}},
	}
	output := func(write func(*bytes.Buffer) error) string {
		t.Helper()
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	json := func(b *bytes.Buffer) error { return c.WriteJSON(b) }
	table := func(b *bytes.Buffer) error { return c.WriteTable(b) }
	if got, want := output(json), `{"policy":"random","hit_rate":0.25,"ttft_s":{"mean":5.5,"p50":6,"p90":10,"p99":10},"e2e_s":{"p99":20},"good":0.5,"imbalance":1}
{"policy":"a","hit_rate":0.25,"ttft_s":{"mean":11,"p50":12,"p90":20,"p99":20},"e2e_s":{"p99":40},"good":0.5,"imbalance":1}
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := output(table), `10 requests, 2 replicas of 8b with 1000 tokens of cache each
4 requests/s, load 0.8: round robin saturates at 5 requests/s

policy  hit rate  TTFT mean       p50       p90       p99    e2e p99    good  imbalance
random    0.2500     5.50 s    6.00 s   10.00 s   10.00 s     20.0 s   50.0%       1.00
a         0.2500    11.00 s   12.00 s   20.00 s   20.00 s     40.0 s   50.0%       1.00
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// Two seeds, one of which lost requests.
	c.Results = [][]*Result{{resultOf("random", 10, 1), resultOf("random", 10, 3)}}
	c.Results[0][1].Failed, c.Results[0][1].Refused = 4, 2
	if got, want := output(json), `{"policy":"random","hit_rate":0.25,"ttft_s":{"mean":11,"p50":12,"p90":20,"p99":20},"e2e_s":{"p99":40},"good":0.5,"imbalance":1,"failed":2,"refused":1}
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := output(table), `policy  hit rate  TTFT mean       p50       p90       p99    e2e p99    good  imbalance  p90 spread  failed  refused
random    0.2500    11.00 s   12.00 s   20.00 s   20.00 s     40.0 s   50.0%       1.00  ±    50.0%       2        1
`; !strings.HasSuffix(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestEmptyResult: figures of a policy that served nothing are 0.
func TestEmptyResult(t *testing.T) {
	s := Summarize([]*Result{{Policy: "none"}})
	if s.TTFT.P90 != 0 || s.TTFT.Mean != 0 || p90Spread([]*Result{{}}) != 0 {
		t.Errorf("%+v", s)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestOutputErrors(t *testing.T) {
	c := &Comparison{Results: [][]*Result{{resultOf("random", 1, 1)}}}
	if c.WriteJSON(failingWriter{}) == nil || c.WriteTable(failingWriter{}) == nil {
		t.Error("no error from a writer that fails")
	}
}

// TestProgress: each tick draws the bar, and the end removes it.
func TestProgress(t *testing.T) {
	var ended atomic.Int64
	var out bytes.Buffer
	tick, done := make(chan time.Time), make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		drawProgress(&out, &ended, 200, tick, done)
	}()
	ended.Store(50)
	tick <- time.Time{}
	close(done)
	<-finished
	if want := "\r[" + strings.Repeat("#", 10) + strings.Repeat(" ", 30) + "]  25 %\r\033[K"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	// Nothing is drawn on a file, or if there is no tick.
	out.Reset()
	drawProgress(&out, &ended, 200, nil, done)
	f, err := os.Create(t.TempDir() + "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	showProgress(f, &ended, 200, done)
	if stat, err := f.Stat(); err != nil || stat.Size() != 0 || out.Len() != 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
