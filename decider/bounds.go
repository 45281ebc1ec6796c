package decider

import "sync/atomic"

// Bounds are the most that a request of a pool can need. The claims of clients are checked
// against them.
type Bounds struct {
	// Context is the most tokens of one prompt and its answer: the context length
	// of the model as configured or else as the engines report it. Where neither is
	// known, it is Cache.
	Context int
	Known   bool // Context is that of the model
	Cache   int  // tokens in the KV cache of the largest replica
	// Blocks is how many blocks of a prompt are worth their memory, 0 = all.
	Blocks int
}

// heldBlocks is the Blocks of pools that hold requests: a held request keeps only the block
// keys of its body. These blocks are the first 80 KiB of a prompt.
const heldBlocks = 80

// mostContext bounds a context length that an engine reports.
const mostContext = 100_000_000

// assumedOutput is the longest answer that a client can claim while the model's context
// length is unknown: real answers are shorter.
const assumedOutput = 128 << 10

// bounds holds the bounds of a pool, for readers without its lock.
type bounds struct{ current atomic.Pointer[Bounds] }

// Bounds are the pool's bounds now. It takes no lock.
func (l *bounds) Bounds() Bounds {
	if b := l.current.Load(); b != nil {
		return *b
	}
	return Bounds{Context: DefaultCacheTokens, Cache: DefaultCacheTokens}
}

// Output bounds the output that a request claims: n answers of each tokens, after a prompt
// of input tokens; -1 = unknown. A limit that no answer can reach says nothing about the
// answer's length.
func (b Bounds) Output(each, n, input int) int {
	most := b.Context
	if !b.Known {
		most = min(most, assumedOutput)
	}
	if each < 0 || each > most {
		return -1
	}
	return min(min(each, max(b.Context-input, 1))*max(n, 1), b.Cache)
}

// updateBounds recomputes the bounds. The caller holds the pool's lock.
func (l *bounds) updateBounds(c *PoolConfig, replicas []*Replica) {
	b := Bounds{Context: c.ContextTokens}
	for _, r := range replicas {
		b.Cache = max(b.Cache, r.cacheTokens)
		if c.ContextTokens == 0 {
			b.Context = max(b.Context, r.contextTokens)
		}
	}
	if b.Cache == 0 {
		b.Cache = max(c.CacheTokens, 1)
	}
	if c.Admission != nil && c.Admission.Hold {
		b.Blocks = heldBlocks
	}
	if b.Known = b.Context > 0; !b.Known {
		b.Context = b.Cache
	}
	if l.Bounds() != b {
		l.current.Store(&b)
	}
}

// ContextTokens reports the longest context of the engine's models, in tokens;
// 0 = it does not say.
func (e Engine) ContextTokens(n int) {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil {
		return
	}
	r.contextTokens = min(max(n, 0), mostContext)
	p.updateBounds(&p.config, p.replicas)
}
