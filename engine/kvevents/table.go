package kvevents

import (
	"math/bits"

	"pointsman/decider/kvcache"
)

// blockTable keeps two accounts of the blocks in one cache, by the engine's own
// names of them, with our keys of them. A block that is there several times is
// counted as often, as far as is known: a count is what there is at least.
// Blocks in neither account are remembered, so that the ones after them can be
// given their keys, and so that little must be told to have them back. It is an
// open-addressed table with linear probing, 32 bytes a slot.
type blockTable struct {
	slots []tableSlot
	used  int
	known int // blocks that are there now
	most  int // the most that were at once
	idle  int // in neither account
	hand  int // where the next search for those to forget begins
	// waiting are the blocks whose keys are not known, by the one before them.
	waiting map[uint64][]uint64
	orphans int // how many there are
}

// tableSlot is one block.
type tableSlot struct {
	hash   uint64
	parent uint64    // the engine's name of the block before it, unless it is first
	key    uint64    // ours, once placed, and until then what BlockContent says
	count  [2]uint16 // how often it is there, by account
	state  uint8
}

// The accounts of a table.
const (
	present = 0 // what is there
	book    = 1 // what was there before the first batch that is missing
)

// What is known of a slot; 0 = empty.
const (
	slotUsed   = 1 << iota
	slotNamed  // the engine has told what is in it
	slotFirst  // it is the first block of its prompts
	slotPlaced // its key is known
	slotSpared // it is not the next one to be forgotten
)

// leastIdle is how many blocks that are not there are remembered in any case.
const leastIdle = 1024

func (t *blockTable) home(hash uint64) int {
	h, _ := bits.Mul64(hash*0x9e3779b97f4a7c15, uint64(len(t.slots)))
	return int(h)
}

// place returns the place of hash, or of the empty slot where it belongs.
func (t *blockTable) place(hash uint64) int {
	i := t.home(hash)
	for t.slots[i].state != 0 && t.slots[i].hash != hash {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	return i
}

// find returns the slot of hash, or nil. The pointer is valid until the next
// call of at or forget.
func (t *blockTable) find(hash uint64) *tableSlot {
	if len(t.slots) == 0 {
		return nil
	}
	if s := &t.slots[t.place(hash)]; s.state != 0 {
		return s
	}
	return nil
}

// at is find, but makes the slot where there is none.
func (t *blockTable) at(hash uint64) *tableSlot {
	if 5*(t.used+1) > 4*len(t.slots) {
		t.grow()
	}
	s := &t.slots[t.place(hash)]
	if s.state == 0 {
		*s = tableSlot{hash: hash, state: slotUsed | slotSpared}
		t.used++
		t.idle++
	}
	return s
}

// set puts n into an account of a slot. It reports whether the block has come
// to be there or ceased to be, as far as its key is known.
func (t *blockTable) set(s *tableSlot, account int, n uint16) (changed bool) {
	before, was := s.count[account], s.count != [2]uint16{}
	s.count[account] = n
	if is := s.count != [2]uint16{}; was && !is {
		t.idle++
		s.state |= slotSpared
	} else if is && !was {
		t.idle--
	}
	if account == book || (before > 0) == (n > 0) {
		return false
	}
	if n > 0 {
		t.known++
		t.most = max(t.most, t.known)
	} else {
		t.known--
	}
	return s.state&slotPlaced != 0
}

// name notes what is in the block of s, that comes after parent. Its key is
// made later if that of parent is not known.
func (t *blockTable) name(s *tableSlot, parent, content uint64) {
	s.state |= slotNamed
	s.parent, s.key = parent, content
	if p := t.find(parent); p != nil && p.state&slotPlaced != 0 {
		s.key = kvcache.Key(p.key, content)
		s.state |= slotPlaced
		return
	}
	if t.waiting == nil {
		t.waiting = map[uint64][]uint64{}
	}
	t.waiting[parent] = append(t.waiting[parent], s.hash)
	t.orphans++
}

// adopt gives keys to the blocks after that of the slot, which has just got its
// own, and calls f with the keys of those that are there.
func (t *blockTable) adopt(s *tableSlot, f func(key uint64)) {
	if t.orphans == 0 {
		return
	}
	for ready := []uint64{s.hash}; len(ready) > 0; {
		h := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		after := t.waiting[h]
		if after == nil {
			continue
		}
		key := t.find(h).key
		delete(t.waiting, h)
		t.orphans -= len(after)
		for _, h := range after {
			c := t.find(h)
			c.key = kvcache.Key(key, c.key)
			c.state |= slotPlaced
			if c.count[present] > 0 {
				f(c.key)
			}
		}
		ready = append(ready, after...)
	}
}

// tidy forgets blocks that are not there, if there are too many. While some may
// be there all the same, as many are remembered as the cache was seen to hold.
func (t *blockTable) tidy(unsure bool) {
	limit := leastIdle
	if unsure {
		limit = max(limit, t.most)
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
		case s.state == 0 || s.count != [2]uint16{}:
			t.hand++
		case s.state&slotSpared != 0:
			s.state &^= slotSpared
			t.hand++
		default:
			t.forget(t.hand)
		}
	}
}

// forget takes the slot at i, which is in neither account, out of the table.
func (t *blockTable) forget(i int) {
	if s := &t.slots[i]; s.state&(slotNamed|slotPlaced) == slotNamed {
		list := t.waiting[s.parent]
		for k, h := range list {
			if h == s.hash {
				list[k] = list[len(list)-1]
				list = list[:len(list)-1]
				break
			}
		}
		if t.waiting[s.parent] = list; len(list) == 0 {
			delete(t.waiting, s.parent)
		}
		t.orphans--
	}
	t.used--
	t.idle--
	// Entries that follow move up, so that there are no tombstones.
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
	t.slots[i] = tableSlot{}
}

func (t *blockTable) grow() {
	old := t.slots
	t.slots = make([]tableSlot, max(16, len(old)+len(old)/4))
	for _, s := range old {
		if s.state != 0 {
			t.slots[t.place(s.hash)] = s
		}
	}
}

// each calls f with each slot. f may not add any.
func (t *blockTable) each(f func(*tableSlot)) {
	for i := range t.slots {
		if t.slots[i].state != 0 {
			f(&t.slots[i])
		}
	}
}

// keys calls f with the key of each block that is there, as far as it is known.
func (t *blockTable) keys(f func(key uint64)) {
	t.each(func(s *tableSlot) {
		if s.count[present] > 0 && s.state&slotPlaced != 0 {
			f(s.key)
		}
	})
}
