package replay

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/sim"
	"pointsman/sim/trace"
	"pointsman/sim/workload"
)

func splitPolicy() (decider.Policy, error) { return policy.LeastWork{}, nil }

// twoTurns is a prompt of 20,000 tokens, and its next turn.
func twoTurns(gap int) *trace.Trace {
	const block = 100
	t := &trace.Trace{BlockTokens: block}
	add := func(at time.Duration, from, tokens int) {
		r := trace.Request{At: at, Input: tokens, Estimate: tokens, Output: 100, Stream: true}
		for i := range tokens / block {
			r.Blocks = append(r.Blocks, trace.Hash(uint64(from+i)))
		}
		r.Visible = r.Blocks
		t.Requests = append(t.Requests, r)
	}
	add(0, 0, 20_000)
	add(time.Duration(gap)*time.Second, 0, 22_000)
	return t
}

// A prompt that is computed elsewhere costs its transfer, and what the decode replica has
// of it does not cross again.
func TestTransferTakesTime(t *testing.T) {
	o := Options{
		Setup: Setup{Replicas: 2, Profile: sim.Profile70B, CacheTokens: 100_000, Prefill: 1, Transfer: 1e9},
		Rate:  0.01, Policy: splitPolicy, PolicyName: "least_work",
	}
	tr := twoTurns(100)
	s, err := newSimulation(tr, &o)
	if err != nil {
		t.Fatal(err)
	}
	s.agents = nil
	s.run(func(f *flight) { // without an agent: both by way of replica 0
		f.replica = 1
		s.sendLeg(f, 0)
	})
	whole, part := s.flights[0].first-s.flights[0].at, s.flights[1].first-s.flights[1].at
	moved := func(tokens float64) time.Duration { return time.Duration(tokens * float64(320<<10)) } // a byte in a nanosecond
	if computed := whole - moved(20_000); computed < 2*time.Second || computed > 4*time.Second {
		t.Errorf("the first token came after %v, of which %v for the transfer", whole, moved(20_000))
	}
	if computed := part - moved(2_000); computed < 200*time.Millisecond || computed > 500*time.Millisecond {
		t.Errorf("the first token of the next turn came after %v, of which %v for the transfer", part, moved(2_000))
	}
	if st := s.engines[1].Stats(); st.QueryTokens != 0 || st.PromptTokens != 42_000 || st.CachedBlocks < 220 {
		t.Errorf("the decode replica: %+v", st)
	}
}

// With every split all requests are served, the same twice, and the table says what it is
// worth.
func TestSplits(t *testing.T) {
	tr, err := workload.New("chat", 1)
	if err != nil {
		t.Fatal(err)
	}
	tr.Requests = tr.Requests[:1500]
	e := &Experiment{
		Options:  Options{Setup: Setup{Replicas: 4, Profile: sim.Profile70B, CacheTokens: 500_000, Transfer: 10e9}, Seed: 1},
		Load:     0.85,
		Policies: []Policy{{Name: "least_work", New: splitPolicy}, {Name: LowerBound}},
		Splits:   []int{1, 2}, Seeds: 1,
	}
	var tables []string
	for range 2 {
		c, err := e.Run(tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Results) != 4 {
			t.Fatalf("%d rows", len(c.Results))
		}
		for _, r := range c.First() {
			if len(r.TTFT) != len(tr.Requests) || r.Failed+r.Refused+r.Shed > 0 {
				t.Errorf("%s: %d of %d served", r.Policy, len(r.TTFT), len(tr.Requests))
			}
		}
		var b bytes.Buffer
		if err := c.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, b.String())
	}
	if tables[0] != tables[1] {
		t.Error("the second run has other results")
	}
	for _, want := range []string{"\nleast_work 1:3 ", "\nleast_work 2:2 ", "over 10 GB/s:\nleast_work ", " is not worth it here: goodput "} {
		if !strings.Contains(tables[0], want) {
			t.Errorf("no %q in\n%s", want, tables[0])
		}
	}
}

// Where answers would wait for prompts, prefill replicas take these.
func TestPrefillReplicasAreUsed(t *testing.T) {
	tr, err := workload.New("documents", 1)
	if err != nil {
		t.Fatal(err)
	}
	tr.Requests = tr.Requests[:1500]
	s, err := simulate(tr, &Options{
		Setup: Setup{Replicas: 4, Profile: sim.Profile70B, CacheTokens: 500_000, Prefill: 2, Transfer: 50e9},
		Rate:  3, Policy: splitPolicy, PolicyName: "least_work",
	})
	if err != nil {
		t.Fatal(err)
	}
	legs := 0
	for i := range s.flights {
		if s.flights[i].job.Received {
			legs++
		}
		if s.flights[i].replica < 2 {
			t.Fatalf("request %d was served by replica %d, which only computes prompts", i, s.flights[i].replica)
		}
	}
	st := s.agents[0].pool.Status()
	if legs < 100 || int(st.Legs.Legs) != legs || st.Reservations != 0 {
		t.Errorf("%d legs, the agent says %+v; %d reservations remain", legs, st.Legs, st.Reservations)
	}
}

func TestParseTransfer(t *testing.T) {
	for text, want := range map[string]float64{"10GB/s": 1e10, "100Gbit/s": 12.5e9, "2.5 gb/s": 2.5e9, "800MB/s": 8e8, "": 0, "10": 0, "-1GB/s": 0, "NaNGB/s": 0, "infGB/s": 0} {
		if got, err := ParseTransfer(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for text, ok := range map[string]bool{"": true, "1": true, "1, 2": true, "0": false, "1,1": false, "a": false} {
		if _, err := ParseSplits(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
