//go:build ignore

package policy

import (
	"fmt"
	"slices"
	"testing"
)

// sentTo is a scorer in a pool of n replicas that remembers of each so many
// blocks of 256 tokens.
func sentTo(n, blocks int) (*Pool, *ApproximatePrefixScorer) {
	s := newApproximatePrefixScorer()
	s.tokens = blocks * DefaultBlockTokens
	p, _ := newTestPool(LeastRequests{}, n)
	s.Members(p.replicas)
	return p, s
}

// keys are n blocks of a prompt of that number.
func keys(prompt, n int) []uint64 {
	list := make([]uint64, n)
	for b := range list {
		list[b] = scramble(uint64(prompt)<<32 | uint64(b))
	}
	return list
}

func withBlocks(blocks ...uint64) func(*Request) {
	return func(r *Request) { r.Blocks, r.Input = blocks, len(blocks)*DefaultBlockTokens }
}

func TestApproximatePrefixIsTheShareOfBlocksSent(t *testing.T) {
	p, s := sentTo(3, 100)
	one := keys(1, 8)
	wantScores(t, "nothing sent", score(p, s, withBlocks(one...)), 0, 0, 0)
	s.Reserved(&Request{Blocks: one}, 1)
	wantScores(t, "sent to r1", score(p, s, withBlocks(one...)), 0, 1, 0)
	s.Reserved(&Request{Blocks: one[:2]}, 2)
	wantScores(t, "a part sent to r2", score(p, s, withBlocks(one...)), 0, 1, .25)
	longer := append(slices.Clone(one), keys(2, 8)...)
	wantScores(t, "a longer prompt", score(p, s, withBlocks(longer...)), 0, .5, .125)
	wantScores(t, "another beginning", score(p, s, withBlocks(longer[8:]...)), 0, 0, 0)
	wantScores(t, "less than a block", score(p, s, withBlocks()), none, none, none)
	p.replicas[0].down = true
	p.refresh()
	wantScores(t, "without r0", score(p, s, withBlocks(one...)), 1, .25)
}

// It is the dispatch that counts: not what the engine held, nor how it ended.
func TestApproximatePrefixFillsAtDispatch(t *testing.T) {
	p, _ := newTestPool(weighted(t, map[string]float64{"approximate_prefix": 1}), 4, func(c *PoolConfig) { c.CacheTokens = 300 })
	s := p.policy.(*Weighted).scorers[0].Scorer.(*ApproximatePrefixScorer)
	d, id := decide(p, withBlocks(keys(1, 8)...))
	home := p.byName[d.Server]
	if s.size(home) != 8 {
		t.Fatalf("%d blocks at dispatch, want 8", s.size(home))
	}
	p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
	for range 20 {
		if d, _ := decide(p, withBlocks(keys(1, 8)...)); d.Server != home.name {
			t.Fatalf("went to %s after %s", d.Server, home.name)
		}
	}
	for _, r := range p.replicas {
		if r != home && s.size(r) != 0 {
			t.Errorf("%s was sent nothing and has %d blocks", r.name, s.size(r))
		}
	}
}

func TestApproximatePrefixForgetsTheLeastRecentlySent(t *testing.T) {
	p, s := sentTo(2, 10)
	send := func(prompt int) {
		score(p, s, withBlocks(keys(prompt, 4)...))
		s.Reserved(&Request{Blocks: keys(prompt, 4)}, 0)
		if n := s.size(p.replicas[0]); n > 10 {
			t.Fatalf("%d blocks, want at most 10", n)
		}
	}
	send(1)
	send(2)
	send(1)
	send(3) // two blocks of prompt 2 have to go, its last
	for prompt, want := range map[int]float64{1: 1, 2: .5, 3: 1} {
		wantScores(t, fmt.Sprintf("prompt %d", prompt), score(p, s, withBlocks(keys(prompt, 4)...)), want, 0)
	}
	for prompt := range 1000 {
		send(prompt)
	}
	if n := s.size(p.replicas[0]); n != 10 {
		t.Errorf("%d blocks, want 10", n)
	}
}

// The capacity is in tokens: when it is learned that blocks have more of them,
// there are fewer.
func TestApproximatePrefixCapacityFollowsTheTokensOfABlock(t *testing.T) {
	p, _ := newTestPool(weighted(t, map[string]float64{"approximate_prefix": 1}), 1)
	s := p.policy.(*Weighted).scorers[0].Scorer.(*ApproximatePrefixScorer)
	for _, x := range []struct{ blockTokens, blocks int }{{256, 7812}, {512, 3906}, {64, 31_250}, {1, routedBlocks}, {1 << 30, 1}} {
		p.view.BlockTokens = x.blockTokens
		score(p, s)
		if s.capacity != x.blocks || s.model.At(0).Capacity() != x.blocks {
			t.Errorf("%d tokens a block: %d and %d blocks, want %d", x.blockTokens, s.capacity, s.model.At(0).Capacity(), x.blocks)
		}
	}
	s.Reserved(&Request{Blocks: keys(1, 100)}, 0)
	if n := s.size(p.replicas[0]); n != 1 {
		t.Errorf("%d blocks, want 1", n)
	}
}

func TestApproximatePrefixForgetsAReplicaThatLeft(t *testing.T) {
	p, s := sentTo(3, 100)
	for i := range 3 {
		s.Reserved(&Request{Blocks: keys(1, 4)}, i)
	}
	all := slices.Clone(p.replicas)
	p.mu.Lock()
	p.setReplicas([]*Replica{all[0], all[2]})
	p.mu.Unlock()
	s.Members(p.replicas)
	wantScores(t, "the others", score(p, s, withBlocks(keys(1, 4)...)), 1, 1)
	if depth, _ := s.model.Match(keys(1, 1), nil); !slices.Equal(depth, []int32{1, 0, 1}) {
		t.Errorf("the model: %v", depth)
	}
	p.mu.Lock()
	p.setReplicas([]*Replica{all[0], {name: "new", weight: 1}, all[2]})
	p.mu.Unlock()
	s.Members(p.replicas)
	wantScores(t, "a new one", score(p, s, withBlocks(keys(1, 4)...)), 1, 0, 1)
}

func TestApproximatePrefixDoesNotAllocate(t *testing.T) {
	p, s := sentTo(64, 1000)
	r, n := &Request{Pool: p}, 0
	blocks := keys(0, 64)
	out := make([]float64, 64)
	p.view.Candidates = p.open
	one := func() {
		n++
		for b := range blocks {
			blocks[b] = scramble(uint64(n)<<32 | uint64(b))
		}
		r.Blocks = blocks
		s.Score(r, &p.view, out)
		s.Reserved(r, n%64)
	}
	for range 64 * 1000 / 64 * 2 {
		one()
	}
	if got := testing.AllocsPerRun(1000, one); got > 0 {
		t.Errorf("%v allocations a decision", got)
	}
}

func BenchmarkApproximatePrefix(b *testing.B) {
	for _, n := range []int{16, 128} { // blocks of 1 KiB
		b.Run(fmt.Sprintf("%dKiB/64", n), func(b *testing.B) {
			p, s := sentTo(64, llmdCapacity*llmdBlockTokens/DefaultBlockTokens)
			r := &Request{Pool: p, Blocks: keys(1, n)}
			out := make([]float64, 64)
			p.view.Candidates = p.open
			for i := range 64 {
				s.Reserved(r, i)
			}
			k := 0
			b.ReportAllocs()
			for b.Loop() {
				k++
				s.Score(r, &p.view, out)
				s.Reserved(r, k%64)
			}
		})
	}
}
