package decider_test

import (
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
	"pointsman/decider/policy"
)

// Explaining a request changes nothing for those that follow.
func TestExplainLeavesNoTrace(t *testing.T) {
	for _, newPolicy := range []func() decider.Policy{
		func() decider.Policy { return &policy.RoundRobin{} },
		func() decider.Policy { return policy.Random{} },
	} {
		run := func(explain int) (servers []string) {
			p := decidertest.New(newPolicy(), 5)
			for range 20 {
				for range explain {
					p.Explain(p.Request())
				}
				d, _ := p.Send()
				servers = append(servers, d.Server, d.Fallbacks[0])
			}
			return servers
		}
		plain, explained := run(0), run(3)
		for i := range plain {
			if plain[i] != explained[i] {
				t.Fatalf("%T: %v, and with explanations %v", newPolicy(), plain, explained)
			}
		}
	}
}

// An adapter whose only replica is down is refused until that is back.
func TestAdapterWhoseReplicaIsDown(t *testing.T) {
	p := decidertest.New(policy.LeastWork{}, 3)
	for r, names := range map[string][]string{"r0": {"sql"}, "r1": {}, "r2": {}} {
		p.Decider.Adapters(p.Pool, r, names)
	}
	p.Discovered([]decider.ReplicaState{{Name: "r0", Weight: 1}, {Name: "r1", Up: true, Weight: 1}, {Name: "r2", Up: true, Weight: 1}})
	if d, _ := p.Send(decidertest.WithLoRA("sql")); d.Status != 503 || d.Retry < 1 || d.Why != "adapter_down" {
		t.Errorf("%+v", d)
	}
	x := p.Explain(p.Request(decidertest.WithLoRA("sql")))
	if x.Refused != 503 || x.Why != "adapter_down" || x.Candidates[0].Excluded != "down" || x.Candidates[1].Excluded != "no adapter" {
		t.Errorf("%+v", x)
	}
	if d, _ := p.Send(); d.Server == "" {
		t.Errorf("without an adapter: %+v", d)
	}
}

// An explanation shows what each replica has cached of the prompt, also those that are
// not chosen, and nothing where the policy does not look at prompts.
func TestExplainShowsWhatIsCached(t *testing.T) {
	p := decidertest.New(policy.LeastWork{}, 3)
	blocks := decidertest.Blocks(1, 2, 3, 4)
	d, id := p.Send(blocks)
	p.End(id, d.Server)
	p.Discovered([]decider.ReplicaState{{Name: d.Server, Weight: 1}})
	x := p.Explain(p.Request(blocks))
	for _, c := range x.Candidates {
		want := 0
		if c.Replica == d.Server {
			want = 4*decidertest.BlockTokens - 1
		}
		if c.Cached == nil || *c.Cached != want {
			t.Errorf("%+v, want %d tokens cached", c, want)
		}
	}
	p = decidertest.New(&policy.RoundRobin{}, 1)
	if x := p.Explain(p.Request()); x.Candidates[0].Cached != nil {
		t.Errorf("%+v", x.Candidates[0])
	}
}
