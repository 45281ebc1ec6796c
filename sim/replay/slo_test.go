package replay

import (
	"testing"
	"time"

	"pointsman/decider"
)

func TestParseSLO(t *testing.T) {
	for text, want := range map[string]SLO{
		"ttft=2s,tpot=50ms":   DefaultSLO,
		"tpot=100ms":          {2 * time.Second, 100 * time.Millisecond},
		"ttft=1m,tpot=50ms":   {time.Minute, 50 * time.Millisecond},
		"tpot=10ms,ttft=0.5s": {time.Second / 2, 10 * time.Millisecond},
	} {
		if got, err := ParseSLO(text); err != nil || got != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "ttft", "ttft=2", "ttft=-1s", "e2e=2s", "ttft=2s,", "ttft=2s;tpot=3s"} {
		if got, err := ParseSLO(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestGoodput: goodput counts what meets the SLO, good what is read as fast.
func TestGoodput(t *testing.T) {
	o := smallOptions()
	run := func(s SLO) *Result {
		o.SLO = s
		r, err := Run(smallTrace(200), o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	loose, tight, none := run(reading), run(SLO{20 * time.Millisecond, 20 * time.Millisecond}), run(SLO{1, 1})
	if loose.Goodput != loose.Good || tight.Good != loose.Good || tight.Goodput >= loose.Goodput || tight.Goodput == 0 || none.Goodput != 0 {
		t.Errorf("%v %v, %v %v, %v", loose.Good, loose.Goodput, tight.Good, tight.Goodput, none.Goodput)
	}
}

// outputs is a policy that notes the expected output of each request.
type outputs struct{ seen *[]int }

func (p outputs) Rank(r *decider.Request, _ *decider.View, dst []int) []int {
	*p.seen = append(*p.seen, r.Output)
	return append(dst, 0)
}

// TestMaxTokens: agents get the max_tokens of the trace, or the one given.
func TestMaxTokens(t *testing.T) {
	for given, want := range map[int][]int{0: {-1, 77}, 500: {500, 500}} {
		var seen []int
		tr, o := smallTrace(2), smallOptions()
		tr.Requests[1].MaxTokens, o.MaxTokens = 77, given
		o.Policy = func() (decider.Policy, error) { return outputs{&seen}, nil }
		if _, err := Run(tr, o); err != nil || len(seen) != 2 || seen[0] != want[0] || seen[1] != want[1] {
			t.Errorf("%v, want %v: %v", seen, want, err)
		}
	}
}
