package kvcache

import (
	"math"
	"slices"
)

// Image is a copy of a Cache, made in one short step so that its keys can be
// listed without the lock of its owner.
type Image struct{ entries []entry }

// Copy makes m a copy of c. The copy of a reported Cache is empty, as its engine reports
// its blocks again.
func (m *Image) Copy(c *Cache) {
	m.entries = m.entries[:0]
	if c.source == 0 {
		m.entries = append(m.entries, c.entries...)
	}
}

// AppendKeys appends the blocks of the cache to dst: those that would be evicted
// first come first, those that requests use last.
func (m *Image) AppendKeys(dst []uint64) []uint64 {
	if len(m.entries) == 0 {
		return dst
	}
	for i := m.entries[0].next; i != 0; i = m.entries[i].next {
		dst = append(dst, m.entries[i].key)
	}
	for i := len(m.entries) - 1; i > 0; i-- {
		if e := &m.entries[i]; e.inUse() && e.next == unlisted {
			dst = append(dst, e.key)
		}
	}
	return dst
}

// Expect makes room for n further blocks, within the capacity.
func (c *Cache) Expect(n int) {
	n = c.n + min(n, c.capacity-c.n)
	if c.source != 0 || n <= c.n {
		return
	}
	if size := n*5/3 + 2; size > len(c.table) {
		c.growTable(size)
	}
	c.entries = slices.Grow(c.entries, max(0, n+1-len(c.entries)))
}

// fetchedAtOnce is how many keys are looked for in memory at a time.
const fetchedAtOnce = 32

// fetch reads the places of the keys, so that the processor loads them into its caches all
// at once, not one after the other.
func (x *index) fetch(keys []uint64) {
	for _, key := range keys {
		h := key * golden
		if s := &x.shards[h>>(64-shardBits)]; s.used > 0 {
			x.fetched |= s.slots[home(h<<shardBits, len(s.slots))].mask
		}
	}
}

// Restore adds blocks that the cache is believed to hold, in the order of AppendKeys. They
// are evicted before those that it holds already. If not all fit beside these, the first
// keys are left out. It does nothing to a reported Cache.
func (c *Cache) Restore(keys []uint64, now uint32) {
	if c.source != 0 {
		return
	}
	for k := len(keys) - 1; k >= 0 && c.n+c.unkeyed < c.capacity; k-- {
		if (len(keys)-1-k)%fetchedAtOnce == 0 {
			c.index.fetch(keys[max(0, k+1-fetchedAtOnce) : k+1])
		}
		if c.find(keys[k]) != 0 {
			continue
		}
		c.index.set(keys[k], c.bit, now)
		i := c.insert(keys[k])
		first := c.entries[0].next
		c.entries[i].prev, c.entries[i].next = 0, first
		c.entries[first].prev = i
		c.entries[0].next = i
	}
}

// Rates is a copy of a part of the block request rates of a Model.
type Rates struct{ entries []indexEntry }

// RateParts is how many parts the block request rates of the model have.
func (m *Model) RateParts() int { return len(m.indexes) << shardBits }

// Copy makes r a copy of that part of the rates of m.
func (r *Rates) Copy(m *Model, part int) {
	r.entries = append(r.entries[:0], m.indexes[part>>shardBits].shards[part&(1<<shardBits-1)].slots...)
}

// Each calls f with the blocks whose rate is at least least now.
func (r *Rates) Each(now uint32, least float32, f func(key uint64, rate float32)) {
	for i := range r.entries {
		e := &r.entries[i]
		if e.mask == 0 || e.requests < least {
			continue
		}
		if rate := e.decayed(now); rate >= least {
			f(e.key, rate)
		}
	}
}

// RaiseRate makes the request rate of a block at least rate, if some replica has
// the block.
func (m *Model) RaiseRate(key uint64, rate float32, now uint32) {
	if !(rate > 0) || math.IsInf(float64(rate), 0) {
		return
	}
	for _, index := range m.indexes {
		if e := index.find(key); e != nil && e.decayed(now) < rate {
			e.requests, e.at = rate, now
			e.since = now - decayTime // reports of others, or of an earlier life, are not recent
			return
		}
	}
}
