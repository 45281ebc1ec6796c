package decider

import (
	"math"
	"sync/atomic"
)

// bytesPerTokenEstimator learns how many bytes of text make a token of the pool's
// models, from the token counts that engines report of prompts whose length in
// bytes is known. It lives under the pool's lock, but for bits.
type bytesPerTokenEstimator struct {
	bytes, tokens float64       // evidence, decayed
	bits          atomic.Uint64 // bytes a token, as math.Float64bits; 0 = not learned
}

// Evidence begins as scalePrior tokens of usual text, and loses scaleDecay of its
// weight with each window of windowPrompts prompts.
const (
	scalePrior    = 5_000
	scaleDecay    = 0.05
	windowPrompts = 32
	minScale      = 1.0
	maxScale      = 12.0
)

// BytesPerToken is how many bytes of prompt text make a token, as learned from
// the engines, or the usual number.
func (p *Pool) BytesPerToken() float64 { return p.bytesPerToken.current() }

// current is the estimate now. It may be called without the pool's lock.
func (e *bytesPerTokenEstimator) current() float64 {
	if b := e.bits.Load(); b != 0 {
		return math.Float64frombits(b)
	}
	return bytesPerToken
}

// promptWindow counts a replica's prompts, by the pool and by the engine, until
// there are enough of them to compare.
type promptWindow struct {
	begun  int // requests whose first token is known
	text   int // bytes of their prompts
	exact  int // tokens of their prompts that were given as such
	first  int // first tokens that the engine counted
	tokens int // of prompts, that the engine counted

	answers   [2]float64 // tokens of the answers that ended, by kind, as estimated
	generated int        // tokens that the engine counted
}

// reportedTokens are sums of what an engine reported since the start.
type reportedTokens struct{ prompt, hits, queries uint64 }

// Prompts reports how many prompt tokens the engine has counted since the last
// call, and how many tokens it looked up in its prefix cache and found there.
// FirstTokens is called before, with the number of the requests.
func (e Engine) Prompts(tokens, queries, hits int) {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil {
		return
	}
	r.reported.prompt += uint64(max(tokens, 0))
	r.reported.queries += uint64(max(queries, 0))
	r.reported.hits += uint64(max(hits, 0))
	w := &r.promptWindow
	w.tokens += max(tokens, 0)
	if w.first < windowPrompts && w.begun < windowPrompts {
		return
	}
	// Only requests that came through the pool can be compared, a few at the
	// window's edges aside, and only if most of them is text.
	off := w.first - w.begun
	if off*off <= 4 && w.tokens > 2*w.exact && w.text > 0 {
		p.bytesPerToken.learn(float64(w.text), float64(w.tokens-w.exact))
		p.setBlockTokens()
	}
	if off*off <= 4 && w.generated > 0 {
		p.answers.learn(w.answers, float64(w.generated))
	}
	*w = promptWindow{}
}

// learn adds the evidence that so many bytes of text were so many tokens.
func (e *bytesPerTokenEstimator) learn(bytes, tokens float64) {
	if e.tokens == 0 {
		e.bytes, e.tokens = scalePrior*bytesPerToken, scalePrior
	}
	e.set(e.bytes*(1-scaleDecay)+bytes, e.tokens*(1-scaleDecay)+tokens)
}

// set replaces the evidence.
func (e *bytesPerTokenEstimator) set(bytes, tokens float64) {
	e.bytes, e.tokens = bytes, tokens
	e.bits.Store(math.Float64bits(min(maxScale, max(minScale, e.bytes/e.tokens))))
}

// setBlockTokens recomputes how many tokens a block of a prompt has. The caller
// holds the lock.
func (p *Pool) setBlockTokens() {
	n := p.config.BlockTokens
	if p.tokens.Load() == nil { // else it is counted, not estimated
		n = max(1, int(float64(n)*bytesPerToken/p.BytesPerToken()+0.5))
	}
	if n != p.view.BlockTokens {
		p.view.BlockTokens = n
		p.caches.setBlockTokens(n, p.replicas)
	}
}
