package replay

import (
	"math"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/sim"
	"pointsman/sim/trace"
)

// queueTable are the policies of these tests.
var queueTable = policy.Table{
	policy.With("kv_cost", policy.KVCostDefaults, policy.NewKVCost),
	policy.Plain("round_robin", func() decider.Policy { return &policy.RoundRobin{} }),
}

func kvCost() (decider.Policy, error) { return policy.NewKVCost(policy.KVCostDefaults) }

// queued replays four requests on one replica that computes 100 tokens in steps of 0.1 s,
// and returns the seconds until their first tokens. They come 0.01 s apart, and the last
// one begins with 100 tokens of the first.
func queued(t *testing.T, q *RouterQueue, inputs [4]int) (first [4]float64) {
	t.Helper()
	tr := &trace.Trace{BlockTokens: 10}
	for i, input := range inputs {
		r := trace.Request{At: time.Duration(i) * 10 * time.Millisecond, Input: input, Estimate: input, Output: 1, Stream: true}
		for k := range input / tr.BlockTokens {
			key := 1000*(i+1) + k
			if i == 3 && k < 10 {
				key = 1000 + k
			}
			r.Blocks = append(r.Blocks, trace.Hash(uint64(key)))
		}
		r.Visible = r.Blocks
		tr.Requests = append(tr.Requests, r)
	}
	o := Options{
		Setup: Setup{Replicas: 1, CacheTokens: 10_000, Profile: sim.Profile{
			Name: "steps", PrefillRate: 1000, Chunk: 100, Base: time.Millisecond, ContextRead: 1e-9, AttentionDepth: 1e15, MaxRunning: 16,
		}},
		Rate: tr.Rate(), Policy: kvCost, PolicyName: "kv_cost", RouterQueue: q,
	}
	s, err := simulate(tr, &o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.flights {
		first[i] = s.flights[i].first.Seconds()
	}
	if len(s.router.parked) != 0 || s.router.tokens[0] != 0 {
		t.Errorf("%d parked and %d tokens at the end", len(s.router.parked), s.router.tokens[0])
	}
	return first
}

// A request waits while its replica has more tokens to compute than the threshold.
func TestRouterQueueOrder(t *testing.T) {
	late, soon := [4]int{150, 300, 50, 120}, [4]int{150, 50, 300, 120}
	for _, c := range []struct {
		queue  RouterQueue
		inputs [4]int
		want   [4]float64
	}{
		// The first takes steps of 100 and 50 tokens alone. Then the second, whose 300 are
		// more than the threshold; at its first token the other two, of 50 and 20 tokens,
		// which share a step.
		{RouterQueue{1, FCFS}, late, [4]float64{0.15, 0.45, 0.50, 0.52}},
		// The last, with 20 tokens to compute, then the third, with 70 of both, then the
		// second: 20 tokens; 50 and 50 of the second; its other 250.
		{RouterQueue{1, LCFS}, late, [4]float64{0.15, 0.52, 0.27, 0.17}},
		{RouterQueue{1, WSPT}, late, [4]float64{0.15, 0.52, 0.27, 0.17}},
		// At a threshold of 0 one at a time, the shortest first.
		{RouterQueue{0, WSPT}, late, [4]float64{0.15, 0.52, 0.22, 0.17}},
		{RouterQueue{0, FCFS}, late, [4]float64{0.15, 0.45, 0.50, 0.52}},
		// The second is the short one: 50 tokens, or the 300 of the third before it.
		{RouterQueue{0, WSPT}, soon, [4]float64{0.15, 0.22, 0.52, 0.17}},
		{RouterQueue{0, LCFS}, soon, [4]float64{0.15, 0.52, 0.47, 0.17}},
		// A threshold that is never reached: the second begins in the first one's last step,
		// and so on.
		{RouterQueue{100, FCFS}, late, [4]float64{0.20, 0.50, 0.50, 0.52}},
	} {
		got := queued(t, &c.queue, c.inputs)
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-3 {
				t.Errorf("%v, %v: first tokens after %v s, want %v", &c.queue, c.inputs, got, c.want)
				break
			}
		}
	}
}

// With several replicas requests wait only while all are busy, and those that die or
// leave do not count.
func TestRouterQueueNeedsAllBusy(t *testing.T) {
	tr := smallTrace(400)
	o := smallOptions()
	o.Policy, o.PolicyName, o.RouterQueue = kvCost, "kv_cost", &RouterQueue{Threshold: 0.1, Order: WSPT}
	o.Failures = []Failure{{At: 2 * time.Second, Replica: 1}}
	o.Events.Changes = []ReplicaChange{{At: time.Second, Replica: 2, Kind: Leave}}
	s, err := simulate(tr, &o)
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for i := range s.flights {
		if s.flights[i].state == flightServed {
			served++
		}
	}
	if served < 390 || s.router.pushed == 0 || s.router.pushed >= 400 {
		t.Errorf("%d of 400 served, %d waited", served, s.router.pushed)
	}
	for k, tokens := range s.router.tokens {
		if tokens != 0 {
			t.Errorf("replica %d has %d tokens at the end", k, tokens)
		}
	}
}

func TestWithRouterQueue(t *testing.T) {
	list, err := ParsePolicies(queueTable, []string{"kv_cost,{name: kv_cost, preset: agentic},round_robin"})
	if err != nil {
		t.Fatal(err)
	}
	q, err := ParseRouterQueue("4,wspt")
	if err != nil {
		t.Fatal(err)
	}
	with, err := WithRouterQueue(list, q)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range with {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, "|"); got != "kv_cost|kv_cost queue 4 wspt|{name: kv_cost, preset: agentic}|{name: kv_cost, preset: agentic} queue 4 wspt|round_robin" {
		t.Error(got)
	}
	if _, err := WithRouterQueue(list[2:], q); err == nil {
		t.Error("accepted a router queue without kv_cost")
	}
	if none, err := WithRouterQueue(list[2:], nil); err != nil || len(none) != 1 {
		t.Errorf("without a queue: %v, %v", none, err)
	}
	for _, text := range []string{"-1", "x", "16,", "16,sjf", "NaN", "Inf"} {
		if q, err := ParseRouterQueue(text); err == nil {
			t.Errorf("%q: %v", text, q)
		}
	}
	if q, err := ParseRouterQueue("16"); err != nil || *q != (RouterQueue{16, FCFS}) || q.String() != "queue 16" {
		t.Errorf("16: %v, %v", q, err)
	}
	o := smallOptions()
	o.RouterQueue, o.Agents = q, 2
	if _, err := Run(smallTrace(2), o); err == nil {
		t.Error("accepted a router queue of two agents")
	}
}
