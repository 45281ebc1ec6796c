package decider

import (
	"math"
	"math/bits"
	"time"
)

// blockIndex tells for each block of prompt which of up to 64 replicas hold
// it, and how often it was asked for of late. It is split into shards, so
// that growing one does not hold up a decision for long.
type blockIndex struct{ shards [1 << shardBits]blockShard }

// blockShard is an open-addressed table with linear probing. Entries leave by
// backward shift, so there are no tombstones to collect.
type blockShard struct {
	slots []blockSlot
	used  int
}

type blockSlot struct {
	key  uint64
	mask uint64  // the replicas that hold the block; 0 = empty slot
	heat float32 // requests that found it, decayed, as of at
	at   uint32  // milliseconds
}

const shardBits = 6

// heatTime is how long a request for a block keeps 1/e of its heat.
const heatTime = 60_000 // milliseconds

// find returns the slot of key, or nil. The pointer is valid until the next
// change of the index.
func (x *blockIndex) find(key uint64) *blockSlot {
	h := key * golden
	s := &x.shards[h>>(64-shardBits)]
	if s.used == 0 {
		return nil
	}
	for i := home(h<<shardBits, len(s.slots)); ; {
		slot := &s.slots[i]
		if slot.mask == 0 {
			return nil
		}
		if slot.key == key {
			return slot
		}
		if i++; i == len(s.slots) {
			i = 0
		}
	}
}

// add notes that the replicas of mask hold key, for a request at now. It
// returns the replicas that held it before.
func (x *blockIndex) add(key, mask uint64, now uint32) (before uint64) {
	slot, before := x.set(key, mask, now)
	if before != 0 {
		slot.heat, slot.at = slot.decayed(now)+1, now
	}
	return before
}

// set is add without a request. The pointer is valid until the next change of
// the index.
func (x *blockIndex) set(key, mask uint64, now uint32) (slot *blockSlot, before uint64) {
	h := key * golden
	s := &x.shards[h>>(64-shardBits)]
	if 5*(s.used+1) > 4*len(s.slots) {
		s.grow()
	}
	i := home(h<<shardBits, len(s.slots))
	for s.slots[i].mask != 0 && s.slots[i].key != key {
		if i++; i == len(s.slots) {
			i = 0
		}
	}
	slot = &s.slots[i]
	if before = slot.mask; before == 0 {
		s.used++
		*slot = blockSlot{key: key, mask: mask, at: now}
	}
	slot.mask |= mask
	return slot, before
}

// dropAll notes that the replicas of mask hold nothing any more.
func (x *blockIndex) dropAll(mask uint64) {
	var keys []uint64
	for k := range x.shards {
		for _, slot := range x.shards[k].slots {
			if slot.mask&mask != 0 {
				keys = append(keys, slot.key)
			}
		}
	}
	for _, key := range keys {
		x.drop(key, mask)
	}
}

// drop notes that the replicas of mask hold key no more.
func (x *blockIndex) drop(key, mask uint64) {
	slot := x.find(key)
	if slot == nil {
		return
	}
	if slot.mask &^= mask; slot.mask != 0 {
		return
	}
	h := key * golden
	s := &x.shards[h>>(64-shardBits)]
	i := home(h<<shardBits, len(s.slots))
	for s.slots[i].key != key || s.slots[i].mask != 0 {
		if i++; i == len(s.slots) {
			i = 0
		}
	}
	s.used--
	for j := i; ; {
		if j++; j == len(s.slots) {
			j = 0
		}
		next := s.slots[j]
		if next.mask == 0 {
			break
		}
		if between(home(next.key*golden<<shardBits, len(s.slots)), i, j) {
			s.slots[i] = next
			i = j
		}
	}
	s.slots[i] = blockSlot{}
}

func (s *blockShard) grow() {
	old := s.slots
	s.slots = make([]blockSlot, max(8, len(old)+len(old)/2))
	for k := range old {
		if old[k].mask == 0 {
			continue
		}
		i := home(old[k].key*golden<<shardBits, len(s.slots))
		for s.slots[i].mask != 0 {
			if i++; i == len(s.slots) {
				i = 0
			}
		}
		s.slots[i] = old[k]
	}
}

// decayed is the slot's heat at now.
func (s *blockSlot) decayed(now uint32) float32 {
	if now == s.at {
		return s.heat
	}
	return s.heat * float32(math.Exp(-float64(now-s.at)/heatTime))
}

// milliseconds is a time for heat. It wraps after 49 days, which merely makes
// a block that was not asked for in all that time seem asked for.
func milliseconds(t time.Duration) uint32 { return uint32(t / time.Millisecond) }

// golden spreads keys that are no hashes over the upper bits (Knuth, The Art
// of Computer Programming, 6.4).
const golden = 0x9e3779b97f4a7c15

// home maps the hash h to a place among n (Lemire, "Fast random integer
// generation in an interval", 2019).
func home(h uint64, n int) int {
	hi, _ := bits.Mul64(h, uint64(n))
	return int(hi)
}

// between reports whether an entry at j whose home is at h may move to the
// gap at i without passing its home, in a table that wraps.
func between(h, i, j int) bool {
	if i <= j {
		return h <= i || h > j
	}
	return h <= i && h > j
}
