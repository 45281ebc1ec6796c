package decider

import (
	"time"

	"pointsman/decider/kvcache"
)

// extrapolate returns the request's blocks. If the body was truncated, or only its first
// blocks are kept, it adds made-up keys for the remaining blocks of the prompt, chained to
// the last block seen. Two prompts that are equal as far as they were seen then count as
// equal to the end of the shorter one. That is right for the turns of a conversation. It is
// wrong if the part seen is a beginning that many conversations share: then the last block
// seen is requested more often than one conversation has turns, and nothing is made up.
// blockTokens is the length of a block as configured. The result is valid until the next
// call.
func (m *cacheModel) extrapolate(r *Request, blockTokens int, now time.Duration) []uint64 {
	n := r.Input / blockTokens
	if m.model == nil || !r.Cut && !r.Short || len(r.Blocks) == 0 || len(r.Blocks) >= n {
		return r.Blocks
	}
	if m.model.RequestRate(r.Blocks[len(r.Blocks)-1], kvcache.Milliseconds(now)) > turnsRate {
		return r.Blocks
	}
	b := append(m.extrapolated[:0], r.Blocks...)
	key := b[len(b)-1]
	for len(b) < min(n, maxExtrapolated) {
		key = scramble(key + golden)
		b = append(b, key)
	}
	m.extrapolated = b
	return b
}

// rankWhole is rank with the blocks of the whole prompt, as far as they can be
// guessed.
func rankWhole(p *Pool, r *Request, now time.Duration) {
	seen := r.Blocks
	defer func() { r.Blocks = seen }() // also when a policy panics
	r.Blocks = p.caches.extrapolate(r, p.config.BlockTokens, now)
	p.rank(r, &p.admission.mask, now)
}

// prospectsWhole is prospects with the same blocks.
func prospectsWhole(p *Pool, r *Request, now time.Duration) (prefill float64, soonest time.Duration) {
	seen := r.Blocks
	r.Blocks = p.caches.extrapolate(r, p.config.BlockTokens, now)
	prefill, soonest = p.prospects(r, now)
	r.Blocks = seen
	return prefill, soonest
}

// golden is 2^64 over the golden ratio: it takes equal keys apart.
const golden = 0x9e3779b97f4a7c15

// turnsRate is the block request rate that the turns of one conversation reach
// at most: one every 15 seconds.
const turnsRate = 4

// maxExtrapolated bounds the result: the length is only what the client claims.
const maxExtrapolated = 1 << 10
