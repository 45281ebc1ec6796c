package tokenize

import (
	"sync"
	"time"
)

// cache holds the tokens of prompts by a hash of their text. It keeps two
// generations: when the younger one is full, it becomes the older one, and the older
// one is dropped. A lookup moves an entry to the younger one. It is safe for
// concurrent use.
type cache struct {
	mu         sync.Mutex
	young, old map[uint64]entry
	size       int // of young in blocks, plus entryCost for each entry
}

// entry is the tokens of one prompt.
type entry struct {
	blocks []uint64 // keys of the full blocks; never changed
	tokens int      // number of tokens
	size   int      // tokens in a block
	text   int      // bytes of the prompt's text
	asked  time.Time
}

// Each generation holds about 16 MB.
const (
	maxCacheBlocks = 2 << 20
	entryCost      = 8 // blocks
)

// get returns the entry of a hash, in blocks of that size.
func (c *cache) get(hash uint64, size int) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.young[hash]
	if !ok {
		if e, ok = c.old[hash]; ok {
			c.add(hash, e)
		}
	}
	return e, ok && e.size == size
}

// put adds an entry.
func (c *cache) put(hash uint64, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(hash, e)
}

// add adds an entry to the younger generation. The caller holds the lock.
func (c *cache) add(hash uint64, e entry) {
	if c.young == nil || c.size >= maxCacheBlocks {
		c.old, c.young, c.size = c.young, map[uint64]entry{}, 0
	}
	c.size += len(e.blocks) + entryCost
	if before, ok := c.young[hash]; ok {
		c.size -= len(before.blocks) + entryCost
	}
	c.young[hash] = e
}
