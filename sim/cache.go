package sim

// cache is the KV memory of one engine: a fixed number of blocks. Each is either
// pinned by running jobs or in the list of free blocks, least recently used
// first. A free block stays cached, that is found by its key, until it is
// allocated again. Only store and allocate change the set of cached blocks.
type cache struct {
	blocks []kvBlock // blocks[0] is the head of the free list
	table  map[uint64]int32
	free   int
	// changes counts releases and stores. A job that did not fit can fit only
	// after one of them.
	changes uint64
	evicted func(key uint64) // called for each block that is to be evicted, or nil,
	removed func(key uint64) // and for each that has been, or nil
}

type kvBlock struct {
	key        uint64
	ref        int32
	prev, next int32
	keyed      bool
}

func newCache(n int, removed func(key uint64)) *cache {
	c := &cache{removed: removed, blocks: make([]kvBlock, n+1), table: make(map[uint64]int32), free: n}
	for i := range c.blocks {
		c.blocks[i].prev, c.blocks[i].next = int32(i)-1, int32(i)+1
	}
	c.blocks[0].prev, c.blocks[n].next = int32(n), 0
	return c
}

// size returns the number of blocks, pinned and free.
func (c *cache) size() int { return len(c.blocks) - 1 }

// pin prevents the allocation of block b.
func (c *cache) pin(b int32) {
	if c.blocks[b].ref == 0 {
		c.unlink(b)
	}
	c.blocks[b].ref++
}

// allocate pins the least recently used free block and evicts its content. The
// caller has checked that a block is free.
func (c *cache) allocate() int32 {
	b := c.blocks[0].next
	c.unlink(b)
	p := &c.blocks[b]
	p.ref = 1
	if p.keyed {
		if c.evicted != nil {
			c.evicted(p.key)
		}
		delete(c.table, p.key)
		p.keyed = false
		if c.removed != nil {
			c.removed(p.key)
		}
	}
	return b
}

// store caches block b under key. It reports false if the block or its key is
// cached already: a duplicate stays without a key and is allocated first once it
// is free.
func (c *cache) store(b int32, key uint64) bool {
	p := &c.blocks[b]
	if p.keyed {
		return false
	}
	if _, ok := c.table[key]; ok {
		return false
	}
	c.table[key] = b
	p.key, p.keyed = key, true
	c.changes++
	return true
}

// release removes one pin. A cached block becomes the most recently used.
func (c *cache) release(b int32) {
	p := &c.blocks[b]
	p.ref--
	c.changes++
	if p.ref > 0 {
		return
	}
	at := int32(0)
	if p.keyed {
		at = c.blocks[0].prev
	}
	c.link(b, at)
}

// matchPrefix returns the number of leading keys that are cached, and how many of
// their blocks are free.
func (c *cache) matchPrefix(keys []uint64) (n, free int) {
	for _, key := range keys {
		b, ok := c.table[key]
		if !ok {
			break
		}
		if c.blocks[b].ref == 0 {
			free++
		}
		n++
	}
	return n, free
}

// link inserts b after at in the free list.
func (c *cache) link(b, at int32) {
	next := c.blocks[at].next
	c.blocks[b].prev, c.blocks[b].next = at, next
	c.blocks[at].next, c.blocks[next].prev = b, b
	c.free++
}

func (c *cache) unlink(b int32) {
	p := &c.blocks[b]
	c.blocks[p.prev].next, c.blocks[p.next].prev = p.next, p.prev
	c.free--
}
