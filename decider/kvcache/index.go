package kvcache

import (
	"math"
	"math/bits"
	"time"
)

// index maps each block to the replicas, up to 64, that have it, and counts the
// requests for it. It is split into shards, so that growing one of them does not
// delay a decision for long.
type index struct {
	shards  [1 << shardBits]shard
	fetched uint64 // so that what fetch reads is used
}

// shard is an open-addressed table with linear probing. Removal shifts entries
// back, so no tombstones remain.
type shard struct {
	slots []indexEntry
	used  int
}

type indexEntry struct {
	key      uint64
	mask     uint64  // the replicas that have the block; 0 = empty e
	requests float32 // that found it, decayed, as of at
	at       uint32  // milliseconds
	since    uint32  // when the requests that follow one another began, the same
}

const shardBits = 6

// decayTime is after how long a request counts for 1/e.
const decayTime = 60_000 // milliseconds

// forgotten is the count of requests below which the next request begins a new series.
const forgotten = 0.5

// find returns the e of key, or nil. The pointer is valid until the next
// change of the index.
func (x *index) find(key uint64) *indexEntry {
	h := key * golden
	s := &x.shards[h>>(64-shardBits)]
	if s.used == 0 {
		return nil
	}
	for i := home(h<<shardBits, len(s.slots)); ; {
		e := &s.slots[i]
		if e.mask == 0 {
			return nil
		}
		if e.key == key {
			return e
		}
		if i++; i == len(s.slots) {
			i = 0
		}
	}
}

// add gives key to the replicas of mask, for a request at now, which it counts if count is set.
// It returns the replicas that had it before.
func (x *index) add(key, mask uint64, count bool, now uint32) (before uint64) {
	e, before := x.set(key, mask, now)
	if before != 0 && count {
		e.count(now)
	}
	return before
}

// set is add without counting a request. The pointer is valid until the next
// change of the index.
func (x *index) set(key, mask uint64, now uint32) (e *indexEntry, before uint64) {
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
	e = &s.slots[i]
	if before = e.mask; before == 0 {
		s.used++
		*e = indexEntry{key: key, mask: mask, at: now, since: now}
	}
	e.mask |= mask
	return e, before
}

// dropAll takes every block from the replicas of mask.
func (x *index) dropAll(mask uint64) {
	var keys []uint64
	for k := range x.shards {
		for _, e := range x.shards[k].slots {
			if e.mask&mask != 0 {
				keys = append(keys, e.key)
			}
		}
	}
	for _, key := range keys {
		x.drop(key, mask)
	}
}

// drop takes key from the replicas of mask.
func (x *index) drop(key, mask uint64) {
	e := x.find(key)
	if e == nil {
		return
	}
	if e.mask &^= mask; e.mask != 0 {
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
	s.slots[i] = indexEntry{}
}

func (s *shard) grow() {
	old := s.slots
	s.slots = make([]indexEntry, max(8, len(old)+len(old)/2))
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

// count counts a request at now.
func (e *indexEntry) count(now uint32) {
	before := e.decayed(now)
	if before < forgotten {
		e.since = now
	}
	e.requests, e.at = before+1, now
}

// decayed is the count of requests at now.
func (e *indexEntry) decayed(now uint32) float32 {
	if now == e.at {
		return e.requests
	}
	return e.requests * float32(math.Exp(-float64(now-e.at)/decayTime))
}

// Milliseconds converts the time of an event. It wraps after 49 days, which
// merely makes a block that was not requested in all that time seem requested.
func Milliseconds(t time.Duration) uint32 { return uint32(t / time.Millisecond) }

// golden spreads keys that are not hashes over the upper bits (Knuth, The Art
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
