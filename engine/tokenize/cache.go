package tokenize

import "sync"

// tokenCache remembers the token blocks of prompts by a hash of their text. It
// keeps two generations: when the younger one is full it becomes the older one,
// whose entries are lost unless they were asked for. It is safe for concurrent
// use.
type tokenCache struct {
	mu         sync.Mutex
	young, old map[uint64]tokenEntry
	size       int // of young, in blocks, an entry counting for some more
}

// tokenEntry is the tokens of one prompt: the keys of their full blocks, which
// must not be changed, and their number.
type tokenEntry struct {
	blocks []uint64
	tokens int
}

// Each generation holds some 16 MB.
const (
	cacheBlocks    = 2 << 20
	cacheEntryCost = 8 // blocks
)

func (c *tokenCache) get(hash uint64) (tokenEntry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.young[hash]; ok {
		return e, true
	}
	e, ok := c.old[hash]
	if ok {
		c.add(hash, e)
	}
	return e, ok
}

func (c *tokenCache) put(hash uint64, e tokenEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(hash, e)
}

func (c *tokenCache) add(hash uint64, e tokenEntry) {
	if c.young == nil || c.size >= cacheBlocks {
		c.old, c.young, c.size = c.young, map[uint64]tokenEntry{}, 0
	}
	if _, ok := c.young[hash]; !ok {
		c.size += len(e.blocks) + cacheEntryCost
	}
	c.young[hash] = e
}
