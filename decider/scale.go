package decider

import (
	"math"
	"sync/atomic"
)

// scale is how many bytes of text a token of the pool's models is, learned
// from what engines say of prompts whose length in bytes is known.
type scale struct {
	bytes, tokens float64       // evidence, decayed
	bits          atomic.Uint64 // bytes a token, as math.Float64bits; 0 = not learned
}

// Evidence weighs as much as scalePrior tokens of usual text to begin with, and
// loses scaleDecay of its weight with each window of windowPrompts prompts.
const (
	scalePrior    = 5_000
	scaleDecay    = 0.05
	windowPrompts = 32
	minScale      = 1.0
	maxScale      = 12.0
)

// BytesPerToken is how many bytes of prompt text make a token, as learned from
// the engines, or the usual number.
func (p *Pool) BytesPerToken() float64 {
	if b := p.scale.bits.Load(); b != 0 {
		return math.Float64frombits(b)
	}
	return bytesPerToken
}

// window gathers what a replica's requests were, by the pool's count and by
// the engine's, until there are enough of them to compare.
type window struct {
	begun int // requests whose first token is known
	text  int // bytes of their prompts
	exact int // tokens of their prompts that were given as such
	told  int // first tokens that the engine counted
	asked int // tokens of prompts that the engine counted
}

// toldCounts are sums of what an engine said since the start.
type toldCounts struct{ prompt, hits, queries uint64 }

// Prompts tells how many prompt tokens the engine of that replica has counted
// since the last call, and how many tokens it looked for in its prefix cache
// and found. FirstTokens is called before with the number of the requests.
func (p *Pool) Prompts(replica string, tokens, queries, hits int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.byName[replica]
	if r == nil {
		return
	}
	r.told.prompt += uint64(max(tokens, 0))
	r.told.queries += uint64(max(queries, 0))
	r.told.hits += uint64(max(hits, 0))
	w := &r.window
	w.asked += max(tokens, 0)
	if w.told < windowPrompts && w.begun < windowPrompts {
		return
	}
	// Only requests that came through the pool can be compared, a few at the
	// window's edges aside, and only if most of them is text.
	off := w.told - w.begun
	if off*off <= 4 && w.asked > 2*w.exact && w.text > 0 {
		p.scale.learn(float64(w.text), float64(w.asked-w.exact))
		p.setBlockTokens()
	}
	*w = window{}
}

// learn takes in that so many bytes of text were so many tokens.
func (s *scale) learn(bytes, tokens float64) {
	if s.tokens == 0 {
		s.bytes, s.tokens = scalePrior*bytesPerToken, scalePrior
	}
	s.bytes = s.bytes*(1-scaleDecay) + bytes
	s.tokens = s.tokens*(1-scaleDecay) + tokens
	s.bits.Store(math.Float64bits(min(maxScale, max(minScale, s.bytes/s.tokens))))
}

// setBlockTokens works out how many tokens a block of prompt is. The caller
// holds the lock.
func (p *Pool) setBlockTokens() {
	n := p.config.BlockTokens
	if p.tokens.Load() == nil { // else it is counted, not estimated
		n = max(1, int(float64(n)*bytesPerToken/p.BytesPerToken()+0.5))
	}
	if n != p.view.BlockTokens {
		p.view.BlockTokens = n
		for _, r := range p.replicas {
			p.resizeCache(r)
		}
	}
}
