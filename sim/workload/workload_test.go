package workload

import (
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pointsman/sim/trace"
)

// statistics describe a trace.
type statistics struct {
	requests, sessions   int
	input, output, turns float64 // medians
	meanInput, meanOut   float64
	longest              int
	hits                 float64 // of prompt tokens, in an unbounded cache
}

func measure(t *trace.Trace) (s statistics) {
	var inputs, outputs, turns []float64
	bySession := map[uint64]int{}
	seen := map[uint64]bool{}
	total, hit := 0, 0
	for _, r := range t.Requests {
		inputs, outputs = append(inputs, float64(r.Input)), append(outputs, float64(r.Output))
		s.meanInput += float64(r.Input) / float64(len(t.Requests))
		s.meanOut += float64(r.Output) / float64(len(t.Requests))
		s.longest = max(s.longest, r.Input)
		bySession[r.Session]++
		total += r.Input
		for _, b := range r.Visible {
			if !seen[b] {
				break
			}
			hit += t.BlockTokens
		}
		for _, b := range r.Blocks {
			seen[b] = true
		}
	}
	for _, r := range t.Requests {
		// The later sessions are cut off by the end of the trace.
		if n := bySession[r.Session]; n > 0 && r.At < t.Requests[len(t.Requests)-1].At/2 {
			turns = append(turns, float64(n))
			bySession[r.Session] = 0
		}
	}
	s.requests, s.sessions = len(t.Requests), len(bySession)
	s.input, s.output, s.turns = median(inputs), median(outputs), median(turns)
	s.hits = float64(hit) / float64(total)
	return s
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// TestWorkloads: every workload has the statistics that its description states,
// with any seed.
func TestWorkloads(t *testing.T) {
	// The median, or if that is negative, the mean.
	for name, want := range map[string]struct{ input, output, turns, hits float64 }{
		"chat":            {-2400, 250, 3, 0.92},
		"agents":          {142_000, 444, 43, 0.965},
		"documents":       {10_500, 200, 2, 0.90},
		"long-among-chat": {-5000, 254, 3, 0.39},
		"reasoning":       {-690, -2480, 1, 0.185},
		"fan-out":         {-9200, 150, 18, 0.91},
		"shared-prefix":   {-10_900, 150, 1, 0.96},
		"bursts":          {-2400, 250, 3, 0.92},
		"diurnal":         {-2400, 250, 3, 0.92},
		"heavy-tail":      {1200, 200, 1, 0},
		"embeddings":      {300, 1, 8000, 0},
	} {
		for seed := range uint64(3) {
			tr, err := New(name, seed)
			if err != nil {
				t.Fatal(err)
			}
			s := measure(tr)
			t.Logf("%s %d: %+v", name, seed, s)
			pick := func(want, median, mean float64) float64 {
				if want < 0 {
					return mean
				}
				return median
			}
			if got := pick(want.input, s.input, s.meanInput); math.Abs(got/math.Abs(want.input)-1) > 0.2 {
				t.Errorf("%s: %.0f tokens in, want %.0f", name, got, math.Abs(want.input))
			}
			if got := pick(want.output, s.output, s.meanOut); math.Abs(got/math.Abs(want.output)-1) > 0.1 {
				t.Errorf("%s: %.0f tokens out, want %.0f", name, got, math.Abs(want.output))
			}
			if math.Abs(s.turns/want.turns-1) > 0.35 {
				t.Errorf("%s: %.0f requests per session, want %.0f", name, s.turns, want.turns)
			}
			if math.Abs(s.hits-want.hits) > 0.07 || name == "agents" && s.hits < 0.96 {
				t.Errorf("%s: a hit rate of %.3f, want %.3f", name, s.hits, want.hits)
			}
			if s.longest > agentContext || s.requests < 3000 || s.requests > 16_000 {
				t.Errorf("%s: %d requests of up to %d tokens", name, s.requests, s.longest)
			}
		}
	}
}

// TestRequests: requests are in order and complete, equal seeds give equal
// traces, and a prompt's blocks are never more than its tokens.
func TestRequests(t *testing.T) {
	for _, name := range Names() {
		one, err := New(name, 1)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := New(name, 1); !reflect.DeepEqual(one, again) {
			t.Errorf("%s: seed 1 gives two traces", name)
		}
		if other, _ := New(name, 2); reflect.DeepEqual(one, other) {
			t.Errorf("%s: two seeds give one trace", name)
		}
		at := time.Duration(0)
		for i, r := range one.Requests {
			if r.At < at || r.Input < 1 || r.Output < 1 || r.Estimate != r.Input || len(r.Visible) != r.Input/one.BlockTokens ||
				len(r.Blocks) > (r.Input+r.Output)/one.BlockTokens || !slices.Equal(r.Visible, r.Blocks[:len(r.Visible)]) {
				t.Fatalf("%s: request %d: %+v", name, i, r)
			}
			at = r.At
		}
	}
}

// TestLongPrompts: about one request of fifty among the chats is long.
func TestLongPrompts(t *testing.T) {
	tr, _ := New("long-among-chat", 1)
	long := 0
	for _, r := range tr.Requests {
		if r.Input >= 100_000 {
			long++
		}
	}
	if share := float64(long) / float64(len(tr.Requests)); share < 0.015 || share > 0.025 {
		t.Errorf("%.3f of the prompts are long, want 0.02", share)
	}
}

// TestSubAgents: 44 % of the sessions have sub-agents, whose prompts are far
// shorter than their parents'.
func TestSubAgents(t *testing.T) {
	helped, all := 0, 0
	for seed := range uint64(5) {
		tr, _ := New("agents", seed)
		before, with := map[uint64]int{}, map[uint64]bool{}
		for _, r := range tr.Requests {
			with[r.Session] = with[r.Session] || r.Input < before[r.Session]/2
			before[r.Session] = max(before[r.Session], r.Input)
		}
		for _, r := range tr.Requests {
			// The later sessions are cut off by the end of the trace.
			if has, counted := with[r.Session]; counted && r.At < tr.Requests[len(tr.Requests)-1].At*2/3 {
				delete(with, r.Session)
				all++
				if has {
					helped++
				}
			}
		}
	}
	if share := float64(helped) / float64(all); math.Abs(share-agentsWithHelpers) > 0.08 {
		t.Errorf("%.2f of the sessions have sub-agents", share)
	}
}

// TestShapes: bursts and days show in the numbers of requests over time.
func TestShapes(t *testing.T) {
	for name, want := range map[string]struct{ low, high float64 }{"chat": {0.85, 1.35}, "diurnal": {1.4, 2}, "bursts": {1.2, 3}} {
		tr, _ := New(name, 1)
		const parts = 40
		span, counts := tr.Requests[len(tr.Requests)-1].At+1, make([]float64, parts)
		for _, r := range tr.Requests {
			counts[int(r.At*parts/span)]++
		}
		slices.Sort(counts)
		if most := counts[parts*9/10] * parts / float64(len(tr.Requests)); most < want.low || most > want.high {
			t.Errorf("%s: the 90th percentile of 40 parts has %.2f times the mean, want %.2f to %.2f", name, most, want.low, want.high)
		}
	}
}

func TestUnknown(t *testing.T) {
	if _, err := New("mails", 1); err == nil || !strings.Contains(err.Error(), `workload: unknown "mails"; want one of chat, agents, documents,`) {
		t.Error(err)
	}
}

// TestDocs: every workload is described.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		if !strings.Contains(string(b), "\n| `"+name+"` | ") {
			t.Errorf("docs/simulate.md does not describe %s", name)
		}
	}
}
