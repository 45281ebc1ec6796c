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

// TokenOptions say how a pool comes by the tokens of its prompts.
type TokenOptions struct {
	// BlockTokens is the number of tokens in a block, as in the engines' KV caches.
	BlockTokens int `yaml:"block_tokens"`
	// OnUntokenized says what becomes of requests whose tokens are not to be
	// had: "load_balance" places them by the rest of what is known, "reject"
	// refuses them.
	OnUntokenized string `yaml:"on_untokenized"`
	// Timeout is how long a request waits for its tokens.
	Timeout time.Duration `yaml:"timeout"`
}

// TokenDefaults are the options' defaults; vLLM's blocks have 16 tokens.
var TokenDefaults = TokenOptions{BlockTokens: 16, OnUntokenized: "load_balance", Timeout: 10 * time.Millisecond}

// Reject reports whether requests without tokens are refused.
func (o *TokenOptions) Reject() bool { return o.OnUntokenized == "reject" }

// Validate returns an error that begins with the name of the option at fault.
func (o TokenOptions) Validate() error {
	switch {
	case o.BlockTokens < 1 || o.BlockTokens > 1024:
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

// ComparesText reports whether the pool's policy compares prompts by their text,
// so that its requests need Blocks.
func (p *Pool) ComparesText() bool { return p.usesPrefix.Load() && p.tokens.Load() == nil }
