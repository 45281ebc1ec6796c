package policy

import (
	"math"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

func TestKVCostAgenticPreset(t *testing.T) {
	o := KVCostDefaults
	o.Preset, o.OverlapCredit = "agentic", 0.5
	p := decidertest.New(must(NewKVCost(o)), 2)
	home := p.Served(document(1, 10, 0)).Server
	for range 3 {
		p.SendTo(home, document(2, 1, 0))
	}
	for replica, terms := range p.Terms(document(1, 10, 0)) {
		prefill, requests := 10.0, 0.0
		if replica == home {
			// A bonus of twice the cached tokens, and three requests of 64 blocks
			// of 16 tokens.
			prefill, requests = 0, 3*64*16.0/block
		}
		if math.Abs(terms["prefill_blocks"]-prefill) > 1e-9 || terms["requests"] != requests {
			t.Errorf("%s: terms %v, want %v blocks to compute and %v for requests", replica, terms, prefill, requests)
		}
		if want := 4*terms["prefill_blocks"] + terms["blocks_in_use"] + requests; math.Abs(terms["cost"]-want) > 1e-9 {
			t.Errorf("%s: cost %v, want %v", replica, terms["cost"], want)
		}
	}
}

func TestKVCostCreditDecaysWithThePrefillLoad(t *testing.T) {
	o := KVCostDefaults
	o.OverlapCreditDecay = 1
	p := decidertest.New(must(NewKVCost(o)), 2)
	home := p.Served(document(1, 10, 0)).Server
	p.SendTo(home, document(2, 10, 0)) // as long as the prompt: half of the credit is left
	got := p.Terms(document(1, 10, 0))[home]["prefill_blocks"]
	if want := 20 - (10-1.0/block)/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("%v blocks to compute, want %v", got, want)
	}
}

func TestLMetricMultiplies(t *testing.T) {
	p := decidertest.New(LMetric{}, 3)
	home := p.Served(document(1, 10, 0)).Server
	for range 2 {
		p.SendTo(home, document(2, 4, 0))
	}
	for replica, terms := range p.Terms(document(1, 10, 0)) {
		tokens, requests := 10.0*block, 1.0
		if replica == home {
			// The prefix that two requests in prefill share is counted twice, as
			// it is not computed yet.
			tokens, requests = 8*block+1, 3
		}
		if replica == home && terms["tokens"] < 4*block {
			t.Errorf("%s: %v tokens, want those of the requests in prefill too", replica, terms["tokens"])
		} else if replica != home && terms["tokens"] != tokens {
			t.Errorf("%s: %v tokens, want %v", replica, terms["tokens"], tokens)
		}
		if terms["requests"] != requests || terms["cost"] != terms["tokens"]*requests {
			t.Errorf("%s: terms %v, want %v requests and the product", replica, terms, requests)
		}
	}
}

func TestPredictedLatencyTakesTheLowest(t *testing.T) {
	p := decidertest.New(must(NewPredictedLatency(PredictedLatencyDefaults)), 3)
	p.SendTo("r0", document(1, 20, 0))
	p.SendTo("r2", document(2, 10, 0))
	for n := range 20 {
		d, id := p.Send(document(10+n, 1, 0))
		if d.Server != "r1" {
			t.Fatalf("sent to %s, want the idle replica", d.Server)
		}
		p.Serve(id, d.Server)
		p.End(id, d.Server)
	}
}

// Replicas are drawn in proportion to how much lower than the highest their
// predictions are.
func TestPredictedLatencyDrawsByWeight(t *testing.T) {
	p := decidertest.New(must(NewPredictedLatency(PredictedLatencyOptions{Picker: "weighted_random"})), 3)
	p.SendTo("r1", func(r *decider.Request) { r.Input = 1000 })
	p.SendTo("r2", func(r *decider.Request) { r.Input = 2000 })
	terms := p.Terms(decidertest.Tokens(100))
	high := terms["r2"]["cost"]
	share := (high - terms["r0"]["cost"]) / (2*high - terms["r0"]["cost"] - terms["r1"]["cost"])
	counts := map[string]int{}
	for range draws {
		d, id := p.Send(decidertest.Tokens(100))
		counts[d.Server]++
		p.Finished(decider.Outcome{ID: id, End: decider.ClientGone})
	}
	decidertest.CheckShare(t, "r0", counts["r0"], draws, share)
	if counts["r2"] != 0 {
		t.Errorf("the slowest was drawn %d times", counts["r2"])
	}
}

func TestRivalsSpreadTies(t *testing.T) {
	for name, policy := range rivals() {
		t.Run(name, func(t *testing.T) { decidertest.New(policy, 5).CheckTies(t, draws) })
	}
}

func TestRivalsDoNotAllocate(t *testing.T) {
	for _, policy := range rivals() {
		p := decidertest.New(policy, 64, func(c *decider.PoolConfig) { c.CacheTokens = 50_000 })
		p.CheckAllocations(t, 8000, func(r *decider.Request, n int) {
			decidertest.Document(n%3000, 16, 100)(r)
			p.Clock.Advance(time.Millisecond)
		})
	}
}

func rivals() map[string]decider.Policy {
	decay := KVCostDefaults
	decay.OverlapCreditDecay = 0.5
	return map[string]decider.Policy{
		"lmetric":         LMetric{},
		"agentic":         must(NewKVCost(KVCostOptions{Preset: "agentic"})),
		"decay":           must(NewKVCost(decay)),
		"max":             must(NewPredictedLatency(PredictedLatencyDefaults)),
		"weighted_random": must(NewPredictedLatency(PredictedLatencyOptions{Picker: "weighted_random"})),
		"loadaware":       must(NewExpression(ExpressionOptions{"(in_flight - mean_in_flight) / max(1, mean_in_flight) - cached / input"})),
	}
}

func TestRivalOptionsAreChecked(t *testing.T) {
	wantFault(t, KVCostOptions{Preset: "agents"}, "preset")
	wantFault(t, KVCostOptions{OverlapCreditDecay: -1}, "overlap_credit_decay")
	wantFault(t, KVCostOptions{ActiveRequestWeight: math.Inf(1)}, "active_request_weight")
	wantFault(t, PredictedLatencyOptions{Picker: "min"}, "picker")
}
