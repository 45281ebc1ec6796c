package kvevents

import (
	"math/bits"
	"math/rand/v2"
	"pointsman/keyed"

	"pointsman/decider/kvcache"
)

// table maps the engine's hashes of blocks to our keys, and records in which of two
// snapshots each block is. Idle blocks, which are in no snapshot, are remembered for a
// while: the blocks after them need their keys, and an event that stores a later block may
// restore them. It is an open-addressed hash table with linear probing, 32 bytes a slot. It
// lives under the lock of the Index.
type table struct {
	slots      []slot
	used       int
	liveBlocks int // on the GPU in the live snapshot
	slowBlocks int // on slower tiers there, each as often as it is on one
	peak       int // the largest liveBlocks so far
	idle       int // in no snapshot
	hand       int // where the next search for idle blocks to remove begins
	// children are the blocks without a key, by the hash of the block before them.
	children map[uint64][]uint64
	orphans  int // number of children
}

// slot is one block.
type slot struct {
	hash   uint64
	parent uint64   // the engine's hash of the block before it, unless it is the first
	key    uint64   // our key if slotKeyed, else kvcache.Content
	held   [2]tiers // where the engine holds it, by snapshot
	state  uint8
}

// The snapshots of a table.
const (
	live      = 0 // what is cached now, as far as it is known
	confirmed = 1 // what was cached before the first missing batch
)

// The state of a slot; 0 = empty.
const (
	slotUsed       = 1 << iota
	slotIdentified // its content is known
	slotFirst      // it is the first block of a prompt
	slotKeyed      // its key is known
	slotRecent     // evictIdle passes over it once
	slotStored     // boundSlow does
)

// inUse reports whether the block is in a snapshot.
func (s *slot) inUse() bool { return s.held[live]|s.held[confirmed] != 0 }

// minIdle is how many idle blocks are always remembered.
const minIdle = 1024

// spread is an odd number that nobody knows: an engine that chooses its hashes cannot
// have them all begin at one place.
var spread = rand.Uint64() | 1

// home is the preferred place of a hash.
func (t *table) home(hash uint64) int {
	h, _ := bits.Mul64(hash*spread, uint64(len(t.slots)))
	return int(h)
}

// probe returns the place of hash, or of the empty slot where it belongs.
func (t *table) probe(hash uint64) int {
	i := t.home(hash)
	for t.slots[i].state != 0 && t.slots[i].hash != hash {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	return i
}

// find returns the slot of hash, or nil. The pointer is valid until the next
// call of findOrAdd or remove.
func (t *table) find(hash uint64) *slot {
	if len(t.slots) == 0 {
		return nil
	}
	if s := &t.slots[t.probe(hash)]; s.state != 0 {
		return s
	}
	return nil
}

// findOrAdd is find, but adds a slot if there is none.
func (t *table) findOrAdd(hash uint64) *slot {
	if 5*(t.used+1) > 4*len(t.slots) {
		t.grow()
	}
	s := &t.slots[t.probe(hash)]
	if s.state == 0 {
		*s = slot{hash: hash, state: slotUsed | slotRecent}
		t.used++
		t.idle++
	}
	return s
}

// set adds a slot to a tier in a snapshot or removes it. It reports whether a block with a
// key was added to the live snapshot or removed from it. An engine may report a block again
// whenever a request uses it, but removes it once.
func (t *table) set(s *slot, which int, tier kvcache.Tier, held bool) (changed bool) {
	before, was := s.held[which]&bit(tier) != 0, s.inUse()
	if s.held[which] &^= bit(tier); held {
		s.held[which] |= bit(tier)
	}
	if is := s.inUse(); was && !is {
		t.idle++
		s.state |= slotRecent
	} else if is && !was {
		t.idle--
	}
	if which == confirmed || before == held {
		return false
	}
	n := 1
	if !held {
		n = -1
	}
	if tier == kvcache.GPU {
		t.liveBlocks += n
		t.peak = max(t.peak, t.liveBlocks)
	} else {
		t.slowBlocks += n
	}
	return s.state&slotKeyed != 0
}

// setContent records the content of a block and the block before it. The block
// gets its key once its parent has one.
func (t *table) setContent(k *keyed.Key, s *slot, parent, content uint64) {
	s.state |= slotIdentified
	s.parent, s.key = parent, content
	if p := t.find(parent); p != nil && p.state&slotKeyed != 0 {
		s.key = kvcache.Key(k, p.key, content)
		s.state |= slotKeyed
		return
	}
	if t.children == nil {
		t.children = map[uint64][]uint64{}
	}
	t.children[parent] = append(t.children[parent], s.hash)
	t.orphans++
}

// keyChildren gives keys to the blocks after that of s, which has just got its
// own, and calls f with those in the live snapshot.
func (t *table) keyChildren(k *keyed.Key, s *slot, f func(*slot)) {
	if t.orphans == 0 {
		return
	}
	for ready := []uint64{s.hash}; len(ready) > 0; {
		h := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		after := t.children[h]
		if after == nil {
			continue
		}
		key := t.find(h).key
		delete(t.children, h)
		t.orphans -= len(after)
		for _, h := range after {
			c := t.find(h)
			c.key = kvcache.Key(k, key, c.key)
			c.state |= slotKeyed
			if c.held[live] != 0 {
				f(c)
			}
		}
		ready = append(ready, after...)
	}
}

// evictIdle removes idle blocks if there are too many. unsure means that some of
// them may be cached after all: then as many are remembered as the cache has held.
func (t *table) evictIdle(unsure bool) {
	limit := minIdle
	if unsure {
		limit = max(limit, t.peak)
	}
	if t.idle <= limit {
		return
	}
	for t.idle > limit/2 {
		if t.hand >= len(t.slots) {
			t.hand = 0
		}
		s := &t.slots[t.hand]
		switch {
		case s.state == 0 || s.inUse():
			t.hand++
		case s.state&slotRecent != 0:
			s.state &^= slotRecent
			t.hand++
		default:
			t.remove(t.hand)
		}
	}
}

// remove removes the slot at i, which is idle.
func (t *table) remove(i int) {
	if s := &t.slots[i]; s.state&(slotIdentified|slotKeyed) == slotIdentified {
		list := t.children[s.parent]
		for k, h := range list {
			if h == s.hash {
				list[k] = list[len(list)-1]
				list = list[:len(list)-1]
				break
			}
		}
		if t.children[s.parent] = list; len(list) == 0 {
			delete(t.children, s.parent)
		}
		t.orphans--
	}
	t.used--
	t.idle--
	// Move up the entries that follow, so that there are no tombstones.
	for j := i; ; {
		if j++; j == len(t.slots) {
			j = 0
		}
		if t.slots[j].state == 0 {
			break
		}
		if h := t.home(t.slots[j].hash); i <= j && (h <= i || h > j) || i > j && h <= i && h > j {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = slot{}
}

// grow makes the table a quarter larger.
func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, max(16, len(old)+len(old)/4))
	for _, s := range old {
		if s.state != 0 {
			t.slots[t.probe(s.hash)] = s
		}
	}
}

// each calls f with each slot. f must not add any.
func (t *table) each(f func(*slot)) {
	for i := range t.slots {
		if t.slots[i].state != 0 {
			f(&t.slots[i])
		}
	}
}

// keys calls f with each known key in the live snapshot, and where it is.
func (t *table) keys(f func(key uint64, tier kvcache.Tier)) {
	t.each(func(s *slot) {
		if s.state&slotKeyed != 0 {
			s.held[live].each(func(tier kvcache.Tier) { f(s.key, tier) })
		}
	})
}
