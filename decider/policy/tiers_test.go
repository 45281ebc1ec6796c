package policy

import (
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
	"pointsman/decider/kvcache"
)

// A replica with a prompt in its host's memory is preferred to one without it, and one
// that has it on its GPU to both, under each policy that looks at what is cached.
func TestTiersInTheChoice(t *testing.T) {
	policies := map[string]func() (decider.Policy, error){
		"least_work":        func() (decider.Policy, error) { return LeastWork{}, nil },
		"lmetric":           func() (decider.Policy, error) { return &LMetric{}, nil },
		"kv_cost":           func() (decider.Policy, error) { return NewKVCost(KVCostDefaults) },
		"predicted_latency": func() (decider.Policy, error) { return NewPredictedLatency(PredictedLatencyDefaults) },
		"weighted":          func() (decider.Policy, error) { return NewWeighted(WeightedDefaults) },
		"expression":        func() (decider.Policy, error) { return NewExpression(ExpressionOptions{Formula: "uncached"}) },
	}
	const blocks = 24
	for name, make := range policies {
		t.Run(name, func(t *testing.T) {
			policy, err := make()
			if err != nil {
				t.Fatal(err)
			}
			p := decidertest.New(policy, 3, func(c *decider.PoolConfig) {
				c.CacheTokens, c.CPUCacheTokens = 40*256, 400*256
			})
			serve := func(server string, key int) {
				p.ServedBy(server, decidertest.Document(key, blocks, 10))
			}
			wanted := decidertest.Document(1, blocks, 10)
			chosen := func() string {
				d, id := p.Send(wanted)
				p.End(id, d.Server)
				return d.Server
			}
			serve("r1", 1)
			for k := range 3 { // r1's GPU is full of others then
				serve("r1", 10+k)
				serve("r0", 20+k)
				serve("r2", 30+k)
			}
			r := decider.Request{Pool: p.Pool}
			wanted(&r)
			for _, c := range p.Explain(&r).Candidates {
				cpu := map[string]int{"r1": blocks * 256}[c.Replica]
				if c.Cached == nil || *c.Cached != cpu || c.CachedCPU != cpu || c.CachedDisk != 0 {
					t.Errorf("%s: %v cached, %d in CPU memory, want %d", c.Replica, *c.Cached, c.CachedCPU, cpu)
				}
			}
			for range 5 {
				if got := chosen(); got != "r1" {
					t.Fatalf("a prompt that r1 has in CPU memory went to %s", got)
				}
			}
			if s := p.Status().Stats; s.SlowTokens[0] == 0 || s.SlowTokens[0] > s.CachedTokens || s.SlowTokens[1] != 0 {
				t.Errorf("%d of %d cached tokens in CPU memory", s.SlowTokens[0], s.CachedTokens)
			}
			for k := range 3 {
				serve("r1", 40+k) // what was chosen came to its GPU
			}
			serve("r2", 1)
			for range 5 {
				if got := chosen(); got != "r2" {
					t.Fatalf("a prompt that r2 has on its GPU went to %s", got)
				}
			}
		})
	}
}

// What events report of slower tiers counts likewise.
func TestReportedTiersInTheChoice(t *testing.T) {
	policy, err := NewKVAware(decider.TokenDefaults)
	if err != nil {
		t.Fatal(err)
	}
	p := decidertest.New(policy, 4)
	keys := make([]uint64, 200)
	on := map[string][]decider.BlockChange{}
	for i := range keys {
		keys[i] = uint64(1000 + i)
		for tier, server := range []string{"r1", "r2", "r3"} { // the first on the GPU, and so on
			on[server] = append(on[server], decider.BlockChange{Key: keys[i], Stored: true, Tier: kvcache.Tier(tier)})
		}
	}
	tokenized := func(r *decider.Request) { r.Tokenized(keys, 16*len(keys)+1) }
	followers := map[string]uint64{}
	for _, r := range p.Config.Replicas {
		followers[r.Name] = p.Engine(r.Name).FollowBlocks()
		p.Engine(r.Name).ChangeBlocks(followers[r.Name], on[r.Name])
	}
	for _, want := range []string{"r1", "r2", "r3"} {
		for range 5 {
			r := decider.Request{ID: decider.ID{1}, Pool: p.Pool, Output: -1}
			tokenized(&r)
			if got := p.Explain(&r).Server; got != want {
				t.Fatalf("the prompt goes to %s, want %s", got, want)
			}
		}
		for i := range on[want] {
			on[want][i].Stored = false
		}
		p.Engine(want).ChangeBlocks(followers[want], on[want])
	}
}
