package policy

import (
	"fmt"
	"slices"
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// sentTo is a scorer in a pool of n replicas that remembers that many blocks of each.
func sentTo(n, blocks int) (*decidertest.Pool, *ApproximatePrefixScorer) {
	s := newApproximatePrefixScorer()
	s.tokens = blocks * decidertest.BlockTokens
	return scoring(s, n), s
}

// keys are n blocks of a prompt of that number.
func keys(prompt, n int) []uint64 { return decidertest.Keys(nil, prompt, n) }

func TestApproximatePrefixIsTheShareOfBlocksSent(t *testing.T) {
	p, s := sentTo(3, 100)
	one := keys(1, 8)
	of := func(blocks ...uint64) []float64 { return score(p, decidertest.Blocks(blocks...)) }
	wantScores(t, "nothing sent", of(one...), 0, 0, 0)
	s.Reserved(&decider.Request{Blocks: one}, 1)
	wantScores(t, "sent to r1", of(one...), 0, 1, 0)
	s.Reserved(&decider.Request{Blocks: one[:2]}, 2)
	wantScores(t, "a part sent to r2", of(one...), 0, 1, .25)
	longer := append(slices.Clone(one), keys(2, 8)...)
	wantScores(t, "a longer prompt", of(longer...), 0, .5, .125)
	wantScores(t, "another beginning", of(longer[8:]...), 0, 0, 0)
	wantScores(t, "less than a block", of(), unscored, unscored, unscored)
	p.Drain("r0")
	wantScores(t, "without r0", of(one...), 1, .25)
}

// blocksSent is how many blocks each replica is remembered to have been sent.
func blocksSent(s *routed) map[string]int {
	n := map[string]int{}
	for _, r := range s.list {
		n[r.Name()] = s.size(r)
	}
	return n
}

// What was sent counts, not what the engine held or how the request ended.
func TestApproximatePrefixRemembersWhatIsSent(t *testing.T) {
	policy := weighted(t, map[string]float64{"approximate_prefix": 1})
	p := decidertest.New(policy, 4, func(c *decider.PoolConfig) { c.CacheTokens = 300 })
	s := policy.scorers[0].Scorer.(*ApproximatePrefixScorer)
	home, id := p.Send(decidertest.Blocks(keys(1, 8)...))
	if n := blocksSent(&s.routed)[home.Server]; n != 8 {
		t.Fatalf("%d blocks when it is sent, want 8", n)
	}
	p.End(id, home.Server)
	for range 20 {
		if d, _ := p.Send(decidertest.Blocks(keys(1, 8)...)); d.Server != home.Server {
			t.Fatalf("sent to %s after %s", d.Server, home.Server)
		}
	}
	for server, n := range blocksSent(&s.routed) {
		if server != home.Server && n != 0 {
			t.Errorf("%s was sent nothing and has %d blocks", server, n)
		}
	}
}

func TestApproximatePrefixForgetsTheLeastRecentlySent(t *testing.T) {
	p, s := sentTo(2, 10)
	send := func(prompt int) {
		score(p, decidertest.Blocks(keys(prompt, 4)...))
		s.Reserved(&decider.Request{Blocks: keys(prompt, 4)}, 0)
		if n := blocksSent(&s.routed)["r0"]; n > 10 {
			t.Fatalf("%d blocks, want at most 10", n)
		}
	}
	send(1)
	send(2)
	send(1)
	send(3) // two blocks of prompt 2 have to go, its last
	for prompt, want := range map[int]float64{1: 1, 2: .5, 3: 1} {
		wantScores(t, fmt.Sprintf("prompt %d", prompt), score(p, decidertest.Blocks(keys(prompt, 4)...)), want, 0)
	}
	for prompt := range 1000 {
		send(prompt)
	}
	if n := blocksSent(&s.routed)["r0"]; n != 10 {
		t.Errorf("%d blocks, want 10", n)
	}
}

// The capacity is in tokens: when blocks turn out to have more of them, there are
// fewer.
func TestApproximatePrefixCapacityFollowsTheTokensOfABlock(t *testing.T) {
	s := newApproximatePrefixScorer()
	p := scoring(s, 1)
	for _, x := range []struct{ blockTokens, blocks int }{{256, 7812}, {512, 3906}, {64, 31_250}, {1, routedBlocks}, {1 << 30, 1}} {
		p.Apply(func(c *decider.PoolConfig) { c.BlockTokens = x.blockTokens })
		score(p)
		if s.capacity != x.blocks || s.model.At(0).Capacity() != x.blocks {
			t.Errorf("%d tokens a block: %d and %d blocks, want %d", x.blockTokens, s.capacity, s.model.At(0).Capacity(), x.blocks)
		}
	}
	s.Reserved(&decider.Request{Blocks: keys(1, 100)}, 0)
	if n := blocksSent(&s.routed)["r0"]; n != 1 {
		t.Errorf("%d blocks, want 1", n)
	}
}

func TestApproximatePrefixForgetsAReplicaThatLeft(t *testing.T) {
	p, s := sentTo(3, 100)
	for i := range 3 {
		s.Reserved(&decider.Request{Blocks: keys(1, 4)}, i)
	}
	all := slices.Clone(p.Config.Replicas)
	p.Apply(func(c *decider.PoolConfig) { c.Replicas = []decider.ReplicaConfig{all[0], all[2]} })
	wantScores(t, "the others", score(p, decidertest.Blocks(keys(1, 4)...)), 1, 1)
	if depth, _ := s.model.Match(keys(1, 1), nil); !slices.Equal(depth, []int32{1, 0, 1}) {
		t.Errorf("the model: %v", depth)
	}
	p.Apply(func(c *decider.PoolConfig) { c.Replicas = []decider.ReplicaConfig{all[0], {Name: "new"}, all[2]} })
	wantScores(t, "a new one", score(p, decidertest.Blocks(keys(1, 4)...)), 1, 0, 1)
}

func TestApproximatePrefixDoesNotAllocate(t *testing.T) {
	o := WeightedDefaults
	o.Scorers = map[string]float64{"approximate_prefix": 1}
	o.LRUCapacityPerServer = 4000 // 1000 blocks of 256 tokens
	p := decidertest.New(must(NewWeighted(o)), 64, func(c *decider.PoolConfig) { c.CacheTokens = 50_000 })
	p.CheckAllocations(t, 8000, func(r *decider.Request, n int) {
		decidertest.Document(n, 64, 0)(r)
	})
}

func BenchmarkApproximatePrefix(b *testing.B) {
	for _, n := range []int{16, 128} { // blocks of 1 KiB
		b.Run(fmt.Sprintf("%dKiB/64", n), func(b *testing.B) {
			s := newApproximatePrefixScorer()
			r := &decider.Request{Blocks: keys(1, n)}
			p := decidertest.New(&benchScorer{s, b, r}, 64)
			for i := range 64 {
				s.Reserved(r, i)
			}
			b.ReportAllocs()
			p.Explain(p.Request())
		})
	}
}

// benchScorer measures scoring a request and sending it, in turn to each replica.
type benchScorer struct {
	*ApproximatePrefixScorer
	b *testing.B
	r *decider.Request
}

func (p *benchScorer) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	out := make([]float64, len(v.Candidates))
	k := 0
	for p.b.Loop() {
		k++
		p.Score(p.r, v, out)
		p.Reserved(p.r, k%64)
	}
	return dst
}
