package kvcache

import "sort"

// Cache models one replica's KV cache: which blocks it holds, and in which order
// it would evict them. A block is present because a request on its way to the
// replica will compute it (reserved), because a running request uses it (pinned),
// or because no request uses it and it waits in the list of evictable blocks,
// least recently released first.
//
// A reported Cache, which has a source, holds what the engine's KV-cache events report. It
// has entries only for the blocks that requests use: a block is present because the engine
// reported it, or because it is reserved.
type Cache struct {
	capacity int // blocks
	n        int // entries in use
	used     int // entries reserved or pinned
	running  int // entries pinned
	unkeyed  int // pinned blocks without a key
	slot     int
	bit      uint64 // the replica's in the index
	index    *index // nil = closed

	entries []entry  // entries[0] is the head of the list of evictable blocks
	table   []uint32 // places in entries by key, open addressed; 0 = empty
	free    uint32   // first of the unused entries, linked by next
	source  uint64   // who reports the blocks; 0 = they are predicted

	model *Model
	below [Slower]*Cache // the tiers below the GPU; nil = none
}

type entry struct {
	key        uint64
	prev, next uint32 // in the list of evictable blocks; next is unlisted outside
	reserved   uint32
	pinned     uint32
}

// stored is entry.next in a reported Cache, where the engine has the block.
const stored = uint32(0)

const unlisted = ^uint32(0)

// inUse reports whether a request uses the block.
func (e *entry) inUse() bool { return e.reserved > 0 || e.pinned > 0 }

func newCache(slot int, index *index, capacity int) *Cache {
	return &Cache{
		slot: slot, index: index, bit: 1 << (slot % groupSize), capacity: capacity,
		entries: make([]entry, 1, 64),
	}
}

// Source is who reports the blocks, 0 if nobody does.
func (c *Cache) Source() uint64 { return c.source }

// Closed reports whether the replica has left, or the Cache was reset. Only
// Closed may be called then.
func (c *Cache) Closed() bool { return c.index == nil }

// Len is the number of blocks that the Cache keeps an entry for: all that it
// holds, unless it is a reported one.
func (c *Cache) Len() int { return c.n }

// InUse is the number of blocks that requests use, shared ones counted once.
func (c *Cache) InUse() int { return c.used + c.unkeyed }

// Running is the number of those that requests use whose prompt is computed.
func (c *Cache) Running() int { return c.running + c.unkeyed }

// Capacity is the size of the cache in blocks.
func (c *Cache) Capacity() int { return c.capacity }

// SetCapacity changes the size, and evicts what no longer fits.
func (c *Cache) SetCapacity(blocks int) {
	c.capacity = blocks
	c.evict()
}

// Reserve adds a request that is on its way. It evicts other blocks for it at once, so that
// the next request finds them gone. Model.Ask has counted it for the first asked blocks.
func (c *Cache) Reserve(blocks []uint64, asked int, now uint32) {
	for k, key := range blocks {
		e := &c.entries[c.ensure(key, k >= asked, now)]
		if !e.inUse() {
			c.used++
		}
		e.reserved++
	}
	c.evict()
}

// Cancel takes a Reserve back: the request never ran.
func (c *Cache) Cancel(blocks []uint64) {
	for _, key := range blocks {
		i := c.find(key)
		if i == 0 {
			continue
		}
		e := &c.entries[i]
		if e.reserved--; !e.inUse() {
			c.used--
		}
		c.released(i)
	}
}

// Pin notes that a reserved request runs. unkeyed is how many blocks it uses besides: the
// partial block at the end of its prompt, and its output.
func (c *Cache) Pin(blocks []uint64, unkeyed int) {
	for _, key := range blocks {
		i := c.find(key)
		if i == 0 {
			continue
		}
		e := &c.entries[i]
		e.reserved--
		if e.pinned++; e.pinned == 1 {
			c.running++
		}
		switch {
		case c.source != 0:
			c.released(i)
		case e.next != unlisted:
			c.unlink(i)
		}
	}
	c.unkeyed += unkeyed
	c.evict()
}

// Unpin notes that a pinned request has ended. Its deepest block is evicted
// before its earlier ones, without which it is of no use. Its unkeyed blocks are
// free at once.
func (c *Cache) Unpin(blocks []uint64, unkeyed int) {
	c.unkeyed -= unkeyed
	for k := len(blocks) - 1; k >= 0; k-- {
		i := c.find(blocks[k])
		if i == 0 {
			continue
		}
		e := &c.entries[i]
		if e.pinned--; e.pinned == 0 {
			c.running--
			if c.source == 0 {
				c.link(i)
			}
		}
		if !e.inUse() {
			c.used--
		}
		c.released(i)
	}
	c.evict()
}

// Touch notes that a request with these blocks was sent, for a Cache that does not follow
// requests any further: the blocks become the last to be evicted.
func (c *Cache) Touch(blocks []uint64, now uint32) {
	for k := len(blocks) - 1; k >= 0; k-- {
		i := c.ensure(blocks[k], true, now)
		if c.entries[i].next != unlisted {
			c.unlink(i)
		}
		c.link(i)
	}
	c.evict()
}

// Match counts the leading blocks that are present.
func (c *Cache) Match(blocks []uint64) int {
	for d, key := range blocks {
		if !c.Has(key) {
			return d
		}
	}
	return len(blocks)
}

// Has reports whether a block is present.
func (c *Cache) Has(key uint64) bool {
	if c.source == 0 {
		return c.find(key) != 0
	}
	e := c.index.find(key)
	return e != nil && e.mask&c.bit != 0
}

// Store notes that the engine of a reported Cache has stored a block.
func (c *Cache) Store(key uint64, now uint32) {
	if i := c.find(key); i != 0 {
		c.entries[i].next = stored
	}
	c.index.set(key, c.bit, now)
}

// Drop notes that the engine of a reported Cache has removed a block.
func (c *Cache) Drop(key uint64) {
	if i := c.find(key); i != 0 {
		c.entries[i].next = unlisted
		if c.entries[i].reserved > 0 {
			return
		}
	}
	c.index.drop(key, c.bit)
}

// MatchInUse counts the leading blocks that requests use. A request that uses a
// block uses those before it as well.
func (c *Cache) MatchInUse(blocks []uint64) int {
	return sort.Search(len(blocks), func(d int) bool {
		i := c.find(blocks[d])
		return i == 0 || !c.entries[i].inUse()
	})
}

// evict removes evictable blocks until the rest fits the capacity.
func (c *Cache) evict() { c.Shrink(c.capacity - c.unkeyed) }

// Shrink evicts until at most n blocks are left, or none is evictable.
func (c *Cache) Shrink(n int) {
	for c.n > n && c.entries[0].next != 0 {
		i := c.entries[0].next
		c.unlink(i)
		c.entries[i].next = unlisted
		if below := c.below[0]; below != nil && below.capacity > 0 && !c.entries[i].inUse() {
			below.keep(c.entries[i].key)
		}
		c.dropIdle(i)
	}
}

// close takes the blocks out of the index.
func (c *Cache) close() {
	c.closeBelow()
	if c.source != 0 {
		c.index.dropAll(c.bit)
	}
	for _, i := range c.table {
		if i != 0 {
			c.index.drop(c.entries[i].key, c.bit)
		}
	}
	c.index = nil
}

// link puts i last into the list of evictable blocks.
func (c *Cache) link(i uint32) {
	last := c.entries[0].prev
	c.entries[i].prev, c.entries[i].next = last, 0
	c.entries[last].next = i
	c.entries[0].prev = i
}

// unlink takes i out of that list.
func (c *Cache) unlink(i uint32) {
	e := &c.entries[i]
	c.entries[e.prev].next = e.next
	c.entries[e.next].prev = e.prev
	e.next = unlisted
}

// find returns the place of key, or 0.
func (c *Cache) find(key uint64) uint32 {
	if len(c.table) == 0 {
		return 0
	}
	for s := home(key*golden, len(c.table)); ; {
		i := c.table[s]
		if i == 0 || c.entries[i].key == key {
			return i
		}
		if s++; s == len(c.table) {
			s = 0
		}
	}
}

// ensure returns the place of key, adding it if it is absent. It counts a request for key
// if count is set.
func (c *Cache) ensure(key uint64, count bool, now uint32) uint32 {
	there := c.index.add(key, c.bit, count, now)&c.bit != 0
	if there || c.source != 0 {
		if i := c.find(key); i != 0 {
			return i
		}
	}
	i := c.insert(key)
	if there {
		c.entries[i].next = stored
	}
	return i
}

// insert adds key, which is absent, and returns its place. It is in no list.
func (c *Cache) insert(key uint64) uint32 {
	if 5*(c.n+1) > 3*len(c.table) {
		c.growTable(max(16, len(c.table)+len(c.table)/2))
	}
	i := c.free
	if i != 0 {
		c.free = c.entries[i].next
	} else {
		if len(c.entries) == cap(c.entries) {
			bigger := make([]entry, len(c.entries), len(c.entries)*5/4)
			copy(bigger, c.entries)
			c.entries = bigger
		}
		i = uint32(len(c.entries))
		c.entries = c.entries[:i+1]
	}
	c.entries[i] = entry{key: key, next: unlisted}
	c.n++
	c.place(i)
	return i
}

// place adds i, which is absent, to the table.
func (c *Cache) place(i uint32) {
	s := home(c.entries[i].key*golden, len(c.table))
	for c.table[s] != 0 {
		if s++; s == len(c.table) {
			s = 0
		}
	}
	c.table[s] = i
}

func (c *Cache) growTable(size int) {
	old := c.table
	c.table = make([]uint32, size)
	for _, i := range old {
		if i != 0 {
			c.place(i)
		}
	}
}

// released removes i if nothing uses it any more.
func (c *Cache) released(i uint32) {
	e := &c.entries[i]
	if c.source == 0 {
		c.dropIdle(i)
		return
	}
	if e.reserved == 0 && e.next != stored {
		c.index.drop(e.key, c.bit)
	}
	if !e.inUse() {
		c.remove(i)
	}
}

// dropIdle removes i if no request uses it and it is not in the cache.
func (c *Cache) dropIdle(i uint32) {
	if e := &c.entries[i]; !e.inUse() && e.next == unlisted {
		c.index.drop(e.key, c.bit)
		c.remove(i)
	}
}

// remove takes i out of the table and frees it.
func (c *Cache) remove(i uint32) {
	e := &c.entries[i]
	n := len(c.table)
	s := home(e.key*golden, n)
	for c.table[s] != i {
		if s++; s == n {
			s = 0
		}
	}
	for t := s; ; {
		if t++; t == n {
			t = 0
		}
		j := c.table[t]
		if j == 0 {
			break
		}
		if between(home(c.entries[j].key*golden, n), s, t) {
			c.table[s] = j
			s = t
		}
	}
	c.table[s] = 0
	e.next = c.free
	c.free = i
	c.n--
}
