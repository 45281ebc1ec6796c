package kvcache

import "math/bits"

// Model is what the replicas of a pool are believed to have cached: a Cache for
// each, found by the replica's slot, and one index for every 64 of them. Slots
// are small numbers that the owner gives out; a slot that is free again may be
// given to another replica. A Model is not safe for concurrent use: it lives
// under its owner's lock.
type Model struct {
	caches  []*Cache // by slot; nil = no replica
	indexes []*index
	below   [Slower]*Model // of the tiers below the GPU; nil = no replica has had that
}

// groupSize is how many replicas share an index: as many as a mask has bits.
const groupSize = 64

// Add returns an empty Cache of that capacity, in blocks, for the replica in a
// free slot.
func (m *Model) Add(slot, capacity int) *Cache { return m.add(slot, capacity, 0) }

func (m *Model) add(slot, capacity int, source uint64) *Cache {
	for slot >= len(m.caches) {
		m.caches = append(m.caches, nil)
	}
	for len(m.indexes)*groupSize < len(m.caches) {
		m.indexes = append(m.indexes, new(index))
	}
	c := newCache(slot, m.indexes[slot/groupSize], capacity)
	c.source, c.model = source, m
	m.caches[slot] = c
	return c
}

// At is the Cache of the replica in slot, nil if there is none.
func (m *Model) At(slot int) *Cache {
	if slot >= len(m.caches) {
		return nil
	}
	return m.caches[slot]
}

// Remove closes c, whose replica has left.
func (m *Model) Remove(c *Cache) {
	m.caches[c.slot] = nil
	c.close()
}

// Reset closes c and returns an empty Cache in its place. source names who
// reports the blocks of the new one by Store and Drop; 0 means that nobody does
// and they are predicted.
func (m *Model) Reset(c *Cache, source uint64) *Cache {
	m.Remove(c)
	return m.add(c.slot, c.capacity, source)
}

// Close removes all caches.
func (m *Model) Close() {
	for _, c := range m.caches {
		if c != nil {
			m.Remove(c)
		}
	}
}

// Match counts, for the replica in each slot, how many of the leading blocks it
// has, and returns the counts, in the memory of depth where that suffices, and
// the largest of them.
func (m *Model) Match(blocks []uint64, depth []int32) (_ []int32, best int32) {
	if cap(depth) < len(m.caches) {
		depth = make([]int32, len(m.caches))
	}
	depth = depth[:len(m.caches)]
	clear(depth)
	for g, index := range m.indexes {
		having, d := ^uint64(0), 0
		for ; d < len(blocks); d++ {
			e := index.find(blocks[d])
			if e == nil {
				break
			}
			still := having & e.mask
			if d > 0 {
				setDepth(depth, g, having&^still, d)
			}
			if having = still; having == 0 {
				break
			}
		}
		if d > 0 {
			setDepth(depth, g, having, d)
			best = max(best, int32(d))
		}
	}
	return depth, best
}

// setDepth sets depth to d for the replicas of mask in group g.
func setDepth(depth []int32, g int, mask uint64, d int) {
	for ; mask != 0; mask &= mask - 1 {
		depth[g*groupSize+bits.TrailingZeros64(mask)] = int32(d)
	}
}

// RequestRate is how often requests asked for a block that some replica had at
// that time, over all replicas: a count that decays to 1/e in a minute. now is
// as Milliseconds gives it.
func (m *Model) RequestRate(key uint64, now uint32) float64 {
	rate, _ := m.Requests(key, now)
	return rate
}

// Requests is RequestRate, and for how many milliseconds such requests have come.
func (m *Model) Requests(key uint64, now uint32) (rate, age float64) {
	sum, oldest := float32(0), uint32(0)
	for _, index := range m.indexes {
		if e := index.find(key); e != nil {
			sum, oldest = sum+e.decayed(now), max(oldest, now-e.since)
		}
	}
	return float64(sum), float64(oldest)
}

// Ask counts a request that waits for those of its leading blocks that some replica has, and
// returns how many these are.
func (m *Model) Ask(blocks []uint64, now uint32) int {
	for k, key := range blocks {
		if !m.ask(key, now) {
			return k
		}
	}
	return len(blocks)
}

// ask counts a request for a block, and reports whether some replica has it.
func (m *Model) ask(key uint64, now uint32) bool {
	for _, index := range m.indexes {
		if e := index.find(key); e != nil {
			e.count(now)
			return true
		}
	}
	return false
}
