package kvcache

import (
	"math/bits"
	"slices"
)

// Tier is a kind of memory that holds blocks. Prompts are computed on the GPU; blocks on a
// slower tier are copied there first.
type Tier uint8

// The tiers, fastest first.
const (
	GPU  Tier = iota
	CPU       // memory of the host
	Disk      // storage, and memory of other hosts
	tiers
)

// Slower is the number of tiers below the GPU.
const Slower = int(tiers - 1)

// String returns the tier's name.
func (t Tier) String() string { return [...]string{"gpu", "cpu", "disk"}[t] }

// Slow counts blocks by the tiers below the GPU.
type Slow [Slower]int32

// Sum is the number of blocks on all of them.
func (s Slow) Sum() int32 { return s[0] + s[1] }

// Tiered reports whether any replica has a tier below the GPU.
func (m *Model) Tiered() bool { return m.below[0] != nil || m.below[1] != nil }

// Offload gives c a tier for as many blocks as it evicts, least recently evicted first;
// 0 = none. It does nothing to a reported Cache, whose tiers come from StoreOn.
func (c *Cache) Offload(blocks int) {
	if c.source != 0 {
		return
	}
	if below := c.below[0]; below != nil {
		below.SetCapacity(blocks)
	} else if blocks > 0 {
		c.lower(CPU).SetCapacity(blocks)
	}
}

// StoreOn is Store for a block on that tier. A block may be on several.
func (c *Cache) StoreOn(t Tier, key uint64, now uint32) {
	if t != GPU {
		c = c.lower(t)
	}
	c.Store(key, now)
}

// DropFrom is Drop for a block on that tier; it stays on others.
func (c *Cache) DropFrom(t Tier, key uint64) {
	if t != GPU {
		if c = c.below[t-1]; c == nil {
			return
		}
	}
	c.Drop(key)
}

// lower is the Cache of c's blocks on that tier, made when it is first needed.
func (c *Cache) lower(t Tier) *Cache {
	k := t - 1
	if c.below[k] == nil {
		if c.model.below[k] == nil {
			c.model.below[k] = new(Model)
		}
		c.below[k] = c.model.below[k].add(c.slot, 0, c.source)
	}
	return c.below[k]
}

// keep notes that a block was evicted to the tier of c. It becomes the last to be evicted
// from there.
func (c *Cache) keep(key uint64) {
	block := [1]uint64{key}
	c.Touch(block[:], 0)
}

// Clear removes every block that no request uses, from all tiers: the engine has
// restarted.
func (c *Cache) Clear() {
	below := c.below
	c.below = [Slower]*Cache{}
	c.Shrink(0)
	c.below = below
	for _, b := range below {
		if b != nil {
			b.Clear()
		}
	}
}

// closeBelow closes the Caches of the tiers below.
func (c *Cache) closeBelow() {
	for k, below := range c.below {
		if below != nil {
			c.model.below[k].Remove(below)
			c.below[k] = nil
		}
	}
}

// MatchTiers counts the leading blocks that are on the GPU, and those after them that
// are on slower tiers, each on the fastest that has it.
func (c *Cache) MatchTiers(blocks []uint64) (gpu int, slow Slow) {
	gpu = c.Match(blocks)
	if c.below[0] == nil && c.below[1] == nil {
		return gpu, slow
	}
next:
	for _, key := range blocks[gpu:] {
		for k, below := range c.below {
			if below != nil && below.Has(key) {
				slow[k]++
				continue next
			}
		}
		break
	}
	return gpu, slow
}

// MatchTiers is Match. In addition it counts, for the replica in each slot, the following
// blocks that are on slower tiers, each on the fastest that has it: an engine looks there
// for the blocks after those on its GPU.
func (m *Model) MatchTiers(blocks []uint64, depth []int32, slow []Slow) (_ []int32, best int32, _ []Slow) {
	depth, best = m.Match(blocks, depth)
	slow = slices.Grow(slow[:0], len(depth))[:len(depth)]
	clear(slow)
	for g := range m.indexes {
		m.matchSlow(blocks, depth, slow, g)
	}
	return depth, best, slow
}

// matchSlow counts for the replicas of group g.
func (m *Model) matchSlow(blocks []uint64, depth []int32, slow []Slow, g int) {
	var index [Slower]*index
	there := false
	for k, below := range m.below {
		if below != nil && g < len(below.indexes) {
			index[k], there = below.indexes[g], true
		}
	}
	if !there {
		return
	}
	first, last := g*groupSize, min(len(depth), (g+1)*groupSize)
	waiting, from := uint64(0), len(blocks) // those whose part on the GPU has not ended
	for s := first; s < last; s++ {
		if m.caches[s] != nil {
			waiting |= 1 << (s - first)
			from = min(from, int(depth[s]))
		}
	}
	reading := uint64(0) // those with no gap so far
	var run [Slower]uint64
	begun := from
	count := func(d int) {
		for k, mask := range run {
			for ; mask != 0; mask &= mask - 1 {
				slow[first+bits.TrailingZeros64(mask)][k] += int32(d - begun)
			}
		}
		begun = d
	}
	d := from
	for ; d < len(blocks) && waiting|reading != 0; d++ {
		for w := waiting; w != 0; w &= w - 1 {
			if s := bits.TrailingZeros64(w); int(depth[first+s]) == d {
				reading |= 1 << s
				waiting &^= 1 << s
			}
		}
		var now [Slower]uint64
		left := reading
		for k, x := range index {
			if x == nil || left == 0 {
				continue
			}
			if e := x.find(blocks[d]); e != nil {
				now[k] = left & e.mask
				left &^= e.mask
			}
		}
		reading &^= left
		if now != run {
			count(d)
			run = now
		}
	}
	count(d)
}
