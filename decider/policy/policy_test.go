package policy

import (
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

const draws = decidertest.Draws

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRoundRobinTakesTurnsFromARandomStart(t *testing.T) {
	starts := map[string]int{}
	d := decider.New((&decidertest.Clock{}).Read, decidertest.Seeds())
	for range 200 {
		d.Apply(decider.Config{})
		d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "p", Policy: &RoundRobin{}, Replicas: decidertest.Replicas(4)}}})
		p := decidertest.Of(d.Pools()[0])
		first, _ := p.Send()
		starts[first.Server]++
		for s, n := range p.Burst(4*25 - 1) {
			if want := 25; n != want && !(s == first.Server && n == want-1) {
				t.Fatalf("replica %s had %d turns of 100", s, n)
			}
		}
	}
	if len(starts) != 4 {
		t.Errorf("200 pools started at %v", starts)
	}
}

func TestRoundRobinSpreadsUnequalTurns(t *testing.T) {
	p := decidertest.New(&RoundRobin{}, 3, func(c *decider.PoolConfig) { c.Replicas[0].Weight = 3 })
	run := 0
	counts := map[string]int{}
	for range 500 {
		d, _ := p.Send()
		counts[d.Server]++
		if d.Server == "r0" {
			run++
		} else {
			run = 0
		}
		if run > 2 {
			t.Fatal("the heavy replica had more than two turns in a row")
		}
	}
	if counts["r0"] != 300 || counts["r1"] != 100 || counts["r2"] != 100 {
		t.Errorf("turns %v, want 300, 100, 100", counts)
	}
}

func TestRandomFollowsWeights(t *testing.T) {
	p := decidertest.New(Random{}, 4, func(c *decider.PoolConfig) { c.Replicas[1].Weight = 5 })
	counts := p.OneByOne(draws)
	decidertest.CheckShare(t, "r0", counts["r0"], draws, 1.0/8)
	decidertest.CheckShare(t, "r1", counts["r1"], draws, 5.0/8)
}

// Every pair of distinct candidates is equally likely: with loads that order
// the replicas strictly, the winner of a pair is its lower one, so replica i
// of n wins 2(n-1-i) / (n(n-1)) of all draws.
func TestPowerOfTwoDrawsUniformDistinctPairs(t *testing.T) {
	const n = 6
	p := decidertest.New(PowerOfTwo{}, n)
	for i := range n {
		p.SetInFlight(decidertest.Name(i), 10*i)
	}
	counts := p.OneByOne(draws)
	for i := range n {
		name := decidertest.Name(i)
		decidertest.CheckShare(t, name, counts[name], draws, 2*float64(n-1-i)/(n*(n-1)))
	}
	if counts["r5"] != 0 {
		t.Error("the most loaded replica won against itself")
	}
}

func TestPowerOfTwoSpreadsTies(t *testing.T) {
	decidertest.New(PowerOfTwo{}, 5).CheckTies(t, draws)
}

func TestPowerOfTwoFollowsWeights(t *testing.T) {
	p := decidertest.New(PowerOfTwo{}, 3, func(c *decider.PoolConfig) { c.Replicas[2].Weight = 2 })
	if counts := p.Burst(400); counts["r2"] < 190 || counts["r2"] > 210 {
		t.Errorf("the replica of weight 2 of 4 has %d of 400", counts["r2"])
	}
}

func TestPowerOfTwoOfOneCandidate(t *testing.T) {
	if d, _ := decidertest.New(PowerOfTwo{}, 1).Send(); d.Server != "r0" {
		t.Errorf("sent to %q", d.Server)
	}
}

func TestLeastRequestsIsExactAndSpreadsTies(t *testing.T) {
	for s, c := range decidertest.New(LeastRequests{}, 5).Burst(1000) {
		if c != 200 {
			t.Errorf("%s has %d of 1000 in a burst, want 200", s, c)
		}
	}
	decidertest.New(LeastRequests{}, 5).CheckTies(t, draws)
}

func TestLeastRequestsFollowsWeights(t *testing.T) {
	p := decidertest.New(LeastRequests{}, 3, func(c *decider.PoolConfig) { c.Replicas[2].Weight = 2 })
	if counts := p.Burst(400); counts["r2"] < 198 || counts["r2"] > 202 {
		t.Errorf("the replica of weight 2 of 4 has %d of 400", counts["r2"])
	}
}

func TestLeastRequestsOrdersAllRanks(t *testing.T) {
	p := decidertest.New(LeastRequests{}, 9)
	for i := range 9 {
		p.SetInFlight(decidertest.Name(i), (i*5)%9)
	}
	d, _ := p.Send()
	if d.Server != "r0" || d.Fallbacks != [2]string{"r2", "r4"} {
		t.Errorf("order %s %v, want r0 [r2 r4]", d.Server, d.Fallbacks)
	}
	if load := p.Terms()["r1"]["load"]; load != 6 {
		t.Errorf("load %v of a replica with 5 requests, want 6", load)
	}
}

func TestLeastTokens(t *testing.T) {
	p := decidertest.New(LeastTokens{}, 3)
	p.SendTo("r0", decidertest.Tokens(300))
	p.SendTo("r1", decidertest.Tokens(100))
	p.SendTo("r2", decidertest.Tokens(200))
	p.SetInFlight("r1", 50)
	if d, _ := p.Send(); d.Server != "r1" || d.Fallbacks != [2]string{"r2", "r0"} {
		t.Errorf("order %s %v, want r1 [r2 r0]", d.Server, d.Fallbacks)
	}
	if got := p.Terms()["r0"]["tokens"]; got != 400 {
		t.Errorf("%v tokens at r0, want 300 and the 100 of the request", got)
	}
	decidertest.New(LeastTokens{}, 5).CheckTies(t, draws)
}

func TestThroughputAwareFollowsWeights(t *testing.T) {
	p := decidertest.New(ThroughputAware{}, 3, func(c *decider.PoolConfig) { c.Replicas[1].Weight = 2 })
	if c := p.OneByOne(400); c["r1"] < 198 || c["r1"] > 202 {
		t.Errorf("the replica of weight 2 of 4 had %d of 400", c["r1"])
	}
}

func TestSimplePoliciesDoNotAllocate(t *testing.T) {
	for _, p := range []decider.Policy{&RoundRobin{}, Random{}, PowerOfTwo{}, LeastRequests{}, ThroughputAware{}, must(NewSession(SessionDefaults))} {
		pool := decidertest.New(p, 64)
		pool.CheckAllocations(t, 200, func(r *decider.Request, n int) {
			r.Input, r.HasSession, r.Session = 1000, true, decidertest.Key(uint64(n))
		})
	}
}

// benchRank measures a policy's choice alone, without reserving.
func benchRank(b *testing.B, policy decider.Policy, n int) {
	bench := &ranked{Policy: policy, b: b}
	p := decidertest.New(bench, n)
	for i := range n {
		p.SetInFlight(decidertest.Name(i), i%13)
	}
	bench.on = true
	b.ReportAllocs()
	p.Explain(p.Request(decidertest.Tokens(4000), decidertest.InSession(7), decidertest.WithLoRA("sql")))
}

// ranked calls Rank of a policy as often as a benchmark wants.
type ranked struct {
	decider.Policy
	b  *testing.B
	on bool
}

func (p *ranked) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	if p.on {
		for p.b.Loop() {
			dst = p.Policy.Rank(r, v, dst[:0])
		}
		return dst
	}
	return p.Policy.Rank(r, v, dst)
}

func (p *ranked) Members(replicas []*decider.Replica) {
	if m, ok := p.Policy.(decider.MemberObserver); ok {
		m.Members(replicas)
	}
}

func (p *ranked) UsesPrefix() bool {
	u, ok := p.Policy.(decider.PrefixUser)
	return ok && u.UsesPrefix()
}

func (p *ranked) Terms() []string {
	if t, ok := p.Policy.(decider.Termed); ok {
		return t.Terms()
	}
	return nil
}
