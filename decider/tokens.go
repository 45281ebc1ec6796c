package decider

import (
	"fmt"
	"time"
)

// TokenUser is implemented by policies that compare prompts by their tokens.
// Their pools' requests have no blocks until Request.Tokenized.
type TokenUser interface {
	PrefixUser
	Tokens() *TokenOptions
}

// TokenOptions say how a pool gets the tokens of its prompts.
type TokenOptions struct {
	// BlockTokens is the number of tokens in a block, as in the engines' KV caches,
	// until these report it.
	BlockTokens int `yaml:"block_tokens" help:"tokens in a block until the engines report how many theirs have; then those count"`
	// OnUntokenized says what happens to requests whose tokens are not available:
	// "load_balance" places them by everything else that is known, "reject" refuses them.
	OnUntokenized string `yaml:"on_untokenized" help:"what happens to chat and completion requests without tokens: load_balance places them by load, reject answers 400 or 503"`
	// Timeout is how long a request waits for its tokens.
	Timeout time.Duration `yaml:"timeout" help:"how long a request waits for its tokens; keep it well below the processing_timeout of the proxy"`
}

// maxBlockTokens bounds the size of a block. Blocks below minBlockTokens are not compared,
// even if an engine uses them: each request would have too many.
const (
	minBlockTokens = 4
	maxBlockTokens = 1024
)

// learnable reports whether blocks of n tokens are compared when engines use them.
func learnable(n int) bool { return n >= minBlockTokens && n <= maxBlockTokens }

// TokenDefaults are the options' defaults; vLLM's blocks have 16 tokens.
var TokenDefaults = TokenOptions{BlockTokens: 16, OnUntokenized: "load_balance", Timeout: 10 * time.Millisecond}

// Reject reports whether requests without tokens are refused.
func (o *TokenOptions) Reject() bool { return o.OnUntokenized == "reject" }

// Validate returns an error that begins with the name of the option at fault.
func (o TokenOptions) Validate() error {
	switch {
	case o.BlockTokens < 1 || o.BlockTokens > maxBlockTokens:
		return fmt.Errorf("block_tokens: want 1 to 1024, not %d", o.BlockTokens)
	case o.OnUntokenized != "load_balance" && o.OnUntokenized != "reject":
		return fmt.Errorf("on_untokenized: unknown %.40q; want load_balance or reject", o.OnUntokenized)
	case o.Timeout < time.Millisecond || o.Timeout > time.Second:
		return fmt.Errorf("timeout: want 1ms to 1s, not %v", o.Timeout)
	}
	return nil
}

// Tokens says how the pool's prompts are to be tokenized; nil if they need not
// be.
func (p *Pool) Tokens() *TokenOptions { return p.tokens.Load() }

// BlockTokens reports the size of the blocks in the engine's KV-cache events, in tokens. It
// returns the size that the pool compares from now on, which is that of most of its
// engines.
func (e Engine) BlockTokens(n int) int {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r != nil && learnable(n) {
		r.blocksSeen = true
		learnBlockTokens(p, r, n)
	}
	if o := p.tokens.Load(); o != nil {
		return o.BlockTokens
	}
	return 0
}

// learnBlockTokens notes that the blocks of r's cache have n tokens. The caller holds
// the lock.
func learnBlockTokens(p *Pool, r *Replica, n int) {
	if n == r.blockTokens || !learnable(n) {
		return
	}
	r.blockTokens = n
	chooseBlockTokens(p)
}

// chooseBlockTokens makes the pool compare blocks of the size that most of its engines
// have. Of sizes that are equally frequent, it takes the present one, or else the smallest.
// The caller holds the lock.
func chooseBlockTokens(p *Pool) {
	o := p.tokens.Load()
	if o == nil {
		return
	}
	counts := map[int]int{}
	for _, r := range p.replicas {
		if r.blockTokens > 0 {
			counts[r.blockTokens]++
		}
	}
	best := o.BlockTokens
	for size, n := range counts {
		if n > counts[best] || n == counts[best] && best != o.BlockTokens && size < best {
			best = size
		}
	}
	if best == o.BlockTokens {
		return
	}
	changed := *o
	changed.BlockTokens = best
	p.tokens.Store(&changed)
	p.config.BlockTokens = best
	// The cache models are in blocks of the old size.
	p.setBlockTokens()
	for _, r := range p.replicas {
		if r.cache != nil {
			p.caches.reset(r, 0)
		}
	}
}

// keepBlockTokens keeps the block size that the engines have reported, if a new
// configuration has another. The caller holds the lock.
func keepBlockTokens(p *Pool) {
	o := p.tokens.Load()
	if t, ok := p.policy.(TokenUser); ok && o != nil && o.BlockTokens != t.Tokens().BlockTokens {
		p.config.BlockTokens = o.BlockTokens
	}
}

// ComparesText reports whether the pool's policy compares prompts by their text,
// so that its requests need Blocks.
func (p *Pool) ComparesText() bool { return p.usesPrefix.Load() && p.tokens.Load() == nil }
