package decider

import "sort"

// image is what one replica's KV cache is believed to hold, and in which order
// it would evict it: the engine's own bookkeeping, replayed. A block is there
// because a request on its way to the replica will bring it (awaited), because
// a running request uses it (pinned), or because none does and it waits in the
// list of the evictable, least recently released first.
//
// A live image is told by the engine what is in the cache. It has entries only
// for the blocks that requests need: a block is there because the engine says
// so, or because it is awaited.
type image struct {
	of       *Replica
	index    *blockIndex
	bit      uint64 // the replica's in the index
	capacity int    // blocks

	entries []imageEntry // entries[0] is the head of the list of the evictable
	table   []uint32     // places in entries by key, open addressed; 0 = empty
	held    int          // entries in use
	free    uint32       // first of the unused entries, linked by next
	loose   int          // pinned blocks without a key
	used    int          // entries awaited or pinned
	running int          // entries pinned
	live    uint64       // not 0: the image is live, and which follower's it is
}

type imageEntry struct {
	key        uint64
	prev, next uint32 // in the list of the evictable; next is unlisted outside
	awaited    uint32
	pinned     uint32
}

// stored is imageEntry.next in a live image, where the engine has the block.
const stored = uint32(0)

// inUse reports whether a request needs the block.
func (e *imageEntry) inUse() bool { return e.awaited > 0 || e.pinned > 0 }

const unlisted = ^uint32(0)

func newImage(of *Replica, index *blockIndex, bit uint64, capacity int) *image {
	return &image{of: of, index: index, bit: bit, capacity: capacity, entries: make([]imageEntry, 1, 64)}
}

// await notes that a request with these blocks is on its way. Whatever comes
// after it finds evicted what has to go for them: room is made at once.
func (m *image) await(blocks []uint64, now uint32) {
	for _, key := range blocks {
		e := &m.entries[m.ensure(key, now)]
		if !e.inUse() {
			m.used++
		}
		e.awaited++
	}
	m.evict()
}

// forsake takes an await back: the request never came to run.
func (m *image) forsake(blocks []uint64) {
	for _, key := range blocks {
		i := m.find(key)
		if i == 0 {
			continue
		}
		e := &m.entries[i]
		if e.awaited--; !e.inUse() {
			m.used--
		}
		m.released(i)
	}
}

// pin notes that an awaited request runs, and uses loose blocks that have no
// key besides.
func (m *image) pin(blocks []uint64, loose int) {
	for _, key := range blocks {
		i := m.find(key)
		if i == 0 {
			continue
		}
		e := &m.entries[i]
		e.awaited--
		if e.pinned++; e.pinned == 1 {
			m.running++
		}
		switch {
		case m.live != 0:
			m.released(i)
		case e.next != unlisted:
			m.unlink(i)
		}
	}
	m.loose += loose
	m.evict()
}

// unpin notes that a running request has ended. Its deepest block becomes the
// first of its own to go: without the earlier ones it is of no use. What had no
// key is free at once.
func (m *image) unpin(blocks []uint64, loose int) {
	m.loose -= loose
	for k := len(blocks) - 1; k >= 0; k-- {
		i := m.find(blocks[k])
		if i == 0 {
			continue
		}
		e := &m.entries[i]
		if e.pinned--; e.pinned == 0 {
			m.running--
			if m.live == 0 {
				m.link(i)
			}
		}
		if !e.inUse() {
			m.used--
		}
		m.released(i)
	}
	m.evict()
}

// touch notes that a request with these blocks was sent, for images that
// follow no further than that: it makes them the last to be evicted.
func (m *image) touch(blocks []uint64, now uint32) {
	for k := len(blocks) - 1; k >= 0; k-- {
		i := m.ensure(blocks[k], now)
		if m.entries[i].next != unlisted {
			m.unlink(i)
		}
		m.link(i)
	}
	m.evict()
}

// match counts the leading blocks that are there.
func (m *image) match(blocks []uint64) int {
	for d, key := range blocks {
		if !m.has(key) {
			return d
		}
	}
	return len(blocks)
}

// has reports whether a block is there.
func (m *image) has(key uint64) bool {
	if m.live == 0 {
		return m.find(key) != 0
	}
	slot := m.index.find(key)
	return slot != nil && slot.mask&m.bit != 0
}

// store notes that the engine of a live image has a block.
func (m *image) store(key uint64, now uint32) {
	if i := m.find(key); i != 0 {
		m.entries[i].next = stored
	}
	m.index.set(key, m.bit, now)
}

// unstore notes that the engine of a live image has a block no more.
func (m *image) unstore(key uint64) {
	if i := m.find(key); i != 0 {
		m.entries[i].next = unlisted
		if m.entries[i].awaited > 0 {
			return
		}
	}
	m.index.drop(key, m.bit)
}

// matchInUse counts the leading blocks that requests need. Whoever needs one
// needs those before it as well.
func (m *image) matchInUse(blocks []uint64) int {
	return sort.Search(len(blocks), func(d int) bool {
		i := m.find(blocks[d])
		return i == 0 || !m.entries[i].inUse()
	})
}

// evict makes room, as far as nothing in use stands in the way.
func (m *image) evict() { m.shrink(m.capacity - m.loose) }

// shrink evicts until at most n blocks are held, or none is evictable.
func (m *image) shrink(n int) {
	for m.held > n && m.entries[0].next != 0 {
		i := m.entries[0].next
		m.unlink(i)
		m.entries[i].next = unlisted
		m.dropIdle(i)
	}
}

// clear forgets all that no request holds: the engine has started anew.
func (m *image) clear() { m.shrink(0) }

// close takes the image out of its index. It must not be used afterwards.
func (m *image) close() {
	if m.live != 0 {
		m.index.dropAll(m.bit)
	}
	for _, i := range m.table {
		if i != 0 {
			m.index.drop(m.entries[i].key, m.bit)
		}
	}
	m.of = nil
}

// closed reports whether the image's replica is a member no more.
func (m *image) closed() bool { return m.of == nil }

// link makes i the last to be evicted.
func (m *image) link(i uint32) {
	last := m.entries[0].prev
	m.entries[i].prev, m.entries[i].next = last, 0
	m.entries[last].next = i
	m.entries[0].prev = i
}

// unlink takes i out of the list of the evictable.
func (m *image) unlink(i uint32) {
	e := &m.entries[i]
	m.entries[e.prev].next = e.next
	m.entries[e.next].prev = e.prev
	e.next = unlisted
}

// find returns the place of key, or 0.
func (m *image) find(key uint64) uint32 {
	if len(m.table) == 0 {
		return 0
	}
	for s := home(key*golden, len(m.table)); ; {
		i := m.table[s]
		if i == 0 || m.entries[i].key == key {
			return i
		}
		if s++; s == len(m.table) {
			s = 0
		}
	}
}

// ensure returns the place of key, a new one if there is none.
func (m *image) ensure(key uint64, now uint32) uint32 {
	there := m.index.add(key, m.bit, now)&m.bit != 0
	if there || m.live != 0 {
		if i := m.find(key); i != 0 {
			return i
		}
	}
	if 5*(m.held+1) > 3*len(m.table) {
		m.growTable()
	}
	i := m.free
	if i != 0 {
		m.free = m.entries[i].next
	} else {
		if len(m.entries) == cap(m.entries) {
			bigger := make([]imageEntry, len(m.entries), len(m.entries)*5/4)
			copy(bigger, m.entries)
			m.entries = bigger
		}
		i = uint32(len(m.entries))
		m.entries = m.entries[:i+1]
	}
	m.entries[i] = imageEntry{key: key, next: unlisted}
	if there {
		m.entries[i].next = stored
	}
	m.held++
	m.place(i)
	return i
}

// place enters i, which is not there, in the table.
func (m *image) place(i uint32) {
	s := home(m.entries[i].key*golden, len(m.table))
	for m.table[s] != 0 {
		if s++; s == len(m.table) {
			s = 0
		}
	}
	m.table[s] = i
}

func (m *image) growTable() {
	old := m.table
	m.table = make([]uint32, max(16, len(old)+len(old)/2))
	for _, i := range old {
		if i != 0 {
			m.place(i)
		}
	}
}

// released forgets i as far as nothing holds it any more.
func (m *image) released(i uint32) {
	e := &m.entries[i]
	if m.live == 0 {
		m.dropIdle(i)
		return
	}
	if e.awaited == 0 && e.next != stored {
		m.index.drop(e.key, m.bit)
	}
	if !e.inUse() {
		m.remove(i)
	}
}

// dropIdle forgets i if nothing holds it and it is not in the cache.
func (m *image) dropIdle(i uint32) {
	if e := &m.entries[i]; !e.inUse() && e.next == unlisted {
		m.index.drop(e.key, m.bit)
		m.remove(i)
	}
}

// remove takes i out of the table and frees it.
func (m *image) remove(i uint32) {
	e := &m.entries[i]
	n := len(m.table)
	s := home(e.key*golden, n)
	for m.table[s] != i {
		if s++; s == n {
			s = 0
		}
	}
	for t := s; ; {
		if t++; t == n {
			t = 0
		}
		j := m.table[t]
		if j == 0 {
			break
		}
		if between(home(m.entries[j].key*golden, n), s, t) {
			m.table[s] = j
			s = t
		}
	}
	m.table[s] = 0
	e.next = m.free
	m.free = i
	m.held--
}
