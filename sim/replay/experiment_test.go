package replay

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

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
		"at least 1 seed":     func(e *Experiment) { e.Seeds = 0 },
		"a load above 0":      func(e *Experiment) { e.Load = 0 },
		"no negative numbers": func(e *Experiment) { e.Rate = -1 },
		"0 replicas":          func(e *Experiment) { e.Replicas = 0 },
		"fits into a replica": func(e *Experiment) { e.CacheTokens = 64 },
		"a cache of 1 tokens": func(e *Experiment) { e.CacheTokens = 1 },
		"2000 age":            func(e *Experiment) { e.Agents = 2000 },
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
	r := &Result{Policy: policy, HitRate: 0.25, Good: 0.5, Goodput: 0.25, Imbalance: 1, TokensPerSecond: 10}
	for i := range n {
		at := time.Duration(factor * float64(i+1) * float64(time.Second))
		r.TTFT, r.E2E = append(r.TTFT, at), append(r.E2E, 2*at)
		r.TPOT = append(r.TPOT, at/100)
	}
	return r
}

func TestComparisonOutput(t *testing.T) {
	c := &Comparison{
		Setup:    Setup{Replicas: 2, Profile: sim.Profile8B, CacheTokens: 1000},
		Requests: 10, Rate: 4, Saturation: 5,
		Results: [][]*Result{{resultOf("random", 10, 1)}, {resultOf("a", 10, 2)}}, SLO: DefaultSLO,
	}
	c.Baseline = c.Results[1]
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
	if got, want := output(json), `{"policy":"random","hit_rate":0.25,"ttft_s":{"mean":5.5,"p50":6,"p90":10,"p99":10},"e2e_s":{"mean":11,"p50":12,"p90":20,"p99":20},"good":0.5,"imbalance":1,"tpot_s":{"mean":0.055,"p50":0.06,"p90":0.1,"p99":0.1},"goodput":0.25,"tokens_per_s":10,"against":{"policy":"a","ttft_p90":-0.5,"tpot_p90":-0.5,"e2e_p90":-0.5,"goodput":0}}
{"policy":"a","hit_rate":0.25,"ttft_s":{"mean":11,"p50":12,"p90":20,"p99":20},"e2e_s":{"mean":22,"p50":24,"p90":40,"p99":40},"good":0.5,"imbalance":1,"tpot_s":{"mean":0.11,"p50":0.12,"p90":0.2,"p99":0.2},"goodput":0.25,"tokens_per_s":10,"against":{"policy":"a","ttft_p90":0,"tpot_p90":0,"e2e_p90":0,"goodput":0}}
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := output(table), `10 requests, 2 replicas of 8b with 1000 tokens of cache each
4 requests/s, load 0.8: round robin saturates at 5 requests/s
goodput: first token within 2s, the others 50ms apart on average

                 TTFT, s            TPOT, ms           end to end, s       good- tokens  hit   TTFT
policy            p50   p90   p99    p50   p90   p99    p50   p90   p99     put     /s rate    p90
random            6.00 10.00 10.00   60.0   100   100  12.00 20.00 20.00   25.0%     10 0.25  -50.0%
a                12.00 20.00 20.00    120   200   200  24.00 40.00 40.00   25.0%     10 0.25       –

Last column: change of the TTFT p90 against a.
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// Two seeds, one of which lost requests, and no baseline.
	long := "expression:formula=" + strings.Repeat("x", 200)
	c.Results, c.Baseline = [][]*Result{{resultOf(long, 10, 1), resultOf(long, 10, 300)}}, nil
	c.Results[0][1].Failed, c.Results[0][1].Refused, c.Results[0][1].Shed = 4, 2, 6
	if got := output(json); !strings.Contains(got, `"imbalance":1,"failed":2,"refused":1,"shed":3,`) || strings.Contains(got, "against") {
		t.Error(got)
	}
	got := output(table)
	if want := ": 2 failed, 1 refused, 3 shed\n"; !strings.Contains(got, want) || !strings.Contains(got, ": TTFT p90 ± 99.3% over 2 seeds\n") {
		t.Error(got)
	}
	for line := range strings.Lines(got) {
		if utf8.RuneCountInString(line) > tableWidth+1 {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
}

// TestBaseline: the baseline is replayed once, whether it is in the list or not.
func TestBaseline(t *testing.T) {
	policies, err := ParsePolicies(testPolicies, []string{"round_robin", "session"})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		e := Experiment{Options: Options{Setup: smallOptions().Setup, Seed: 1}, Load: 0.8, Seeds: 2, Policies: policies[:n], Baseline: &policies[1]}
		c, err := e.Run(tickTrace(100), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Results) != n || len(c.Baseline) != 2 || c.Baseline[0].Policy != "session" || n == 2 && c.Baseline[0] != c.Results[1][0] {
			t.Errorf("%d policies: %d results, baseline %+v", n, len(c.Results), c.Baseline)
		}
		if rows := c.Summaries(); rows[0].Against == nil || rows[0].Against.Policy != "session" {
			t.Errorf("%+v", rows[0])
		}
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
