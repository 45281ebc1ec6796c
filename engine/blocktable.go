package engine

import "math/bits"

// blockTable maps the engine's names of the blocks in one cache to our keys of
// them. Where the same block is there several times it is counted. It is an
// open-addressed table with linear probing, 24 bytes a slot.
type blockTable struct {
	slots []tableSlot
	used  int
	// gone are the last blocks that left, so that the ones after them can
	// still be given their keys.
	gone [256]struct{ hash, key uint64 }
	next int
}

type tableSlot struct {
	hash, key uint64
	count     uint32 // 0 = empty
}

func (t *blockTable) home(hash uint64) int {
	h, _ := bits.Mul64(hash*0x9e3779b97f4a7c15, uint64(len(t.slots)))
	return int(h)
}

// find returns the place of hash, or of the empty slot where it belongs.
func (t *blockTable) find(hash uint64) int {
	i := t.home(hash)
	for t.slots[i].count != 0 && t.slots[i].hash != hash {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	return i
}

// key is our key of the block of that name, also if it has just left.
func (t *blockTable) key(hash uint64) (uint64, bool) {
	if len(t.slots) > 0 {
		if s := &t.slots[t.find(hash)]; s.count != 0 {
			return s.key, true
		}
	}
	for i := range t.gone {
		if g := &t.gone[i]; g.hash == hash && g.key != 0 {
			return g.key, true
		}
	}
	return 0, false
}

// add counts a block and reports whether it was not there before.
func (t *blockTable) add(hash, key uint64) bool {
	if 5*(t.used+1) > 4*len(t.slots) {
		t.grow()
	}
	s := &t.slots[t.find(hash)]
	if s.count != 0 {
		s.count++
		return false
	}
	*s = tableSlot{hash, key, 1}
	t.used++
	return true
}

// remove takes a block off the count; its key, and whether it is there no more.
func (t *blockTable) remove(hash uint64) (key uint64, last bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	i := t.find(hash)
	s := &t.slots[i]
	if s.count == 0 {
		return 0, false
	}
	if s.count--; s.count > 0 {
		return 0, false
	}
	key = s.key
	t.gone[t.next].hash, t.gone[t.next].key = hash, key
	t.next = (t.next + 1) % len(t.gone)
	t.used--
	// Entries that follow move up, so that there are no tombstones.
	for j := i; ; {
		if j++; j == len(t.slots) {
			j = 0
		}
		if t.slots[j].count == 0 {
			break
		}
		if h := t.home(t.slots[j].hash); i <= j && (h <= i || h > j) || i > j && h <= i && h > j {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = tableSlot{}
	return key, true
}

func (t *blockTable) grow() {
	old := t.slots
	t.slots = make([]tableSlot, max(16, len(old)+len(old)/2))
	for _, s := range old {
		if s.count != 0 {
			t.slots[t.find(s.hash)] = s
		}
	}
}

// each calls f with the key of each block.
func (t *blockTable) each(f func(key uint64)) {
	for i := range t.slots {
		if t.slots[i].count != 0 {
			f(t.slots[i].key)
		}
	}
}

// clear empties the table.
func (t *blockTable) clear() { *t = blockTable{slots: t.slots[:0:0]} }
