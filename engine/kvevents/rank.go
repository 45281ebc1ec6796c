package kvevents

import (
	"errors"

	"github.com/cespare/xxhash/v2"

	"pointsman/decider"
	"pointsman/decider/kvcache"
)

// rankIndex is the KV cache of one rank, as its events describe it. While no batch
// is missing it has one snapshot, the live one. When batches are lost it splits:
// the live snapshot restarts empty and holds what later batches prove; the
// confirmed snapshot holds what was cached before the gap. Batches that arrive
// meanwhile are buffered until a replay delivers the missing ones. The confirmed
// snapshot then applies both, catches up with the live one and replaces it.
//
// It lives under the lock of its Index. The methods that take the lock say so;
// the others expect the caller to hold it.
type rankIndex struct {
	index     *Index
	name      string // the same after a restart of the agent; "" = it has none
	table     table
	event     event
	snapshots [2]snapshot
	target    int // the snapshot that a batch is being applied to
	group     int // the group of layers that is followed
	// partial means that this group keeps only a part of each prompt: once a group appears
	// that keeps all of it, that one is followed instead.
	partial, grouped bool
	removesSlow      bool // removals from slower tiers are reported
	chunk            int  // how many of the pool's blocks are in one of a slower tier

	confirming    bool              // there is a confirmed snapshot: a replay may deliver what is missing
	buffered      map[uint64][]byte // batches that the confirmed snapshot still lacks, by number
	bufferedBytes int
	// disconnected means that the connection broke and no batch has arrived since.
	// The batches numbered below suspectBefore may be of an earlier run of the
	// engine; 0 = they are known to be of this run.
	disconnected  bool
	suspectBefore uint64
}

// snapshot is the position of a snapshot in the sequence of batches. The blocks
// themselves are in the table.
type snapshot struct {
	next     uint64 // number of the next batch
	sum      uint64 // hash of the last batch
	fresh    bool   // no batch has been applied: sum is not set
	complete bool   // no batch has been missing since the cache was empty
}

// maxBuffered bounds the buffered batches of a rank, in bytes. Each counts
// bufferedCost more than its length.
const (
	maxBuffered  = 8 << 20
	bufferedCost = 64
)

// maxBlocks bounds the blocks of a rank, far above the size of any cache: about
// 300 MB. An engine beyond it does not report the blocks that it removes.
var maxBlocks = 8 << 20 // a variable for tests

var errTooMany = errors.New("more blocks than any cache holds")

// errRestarted means that the engine numbers its batches from 0 again.
var errRestarted = errors.New("the engine has restarted")

// recordStored gathers the change that the rank holds a block.
func (r *rankIndex) recordStored(key uint64, tier kvcache.Tier) {
	x := r.index
	if x.holders != nil {
		h := holder{key, tier}
		if x.holders[h]++; x.holders[h] > 1 {
			return
		}
	}
	x.changes = append(x.changes, decider.BlockChange{Key: key, Stored: true, Tier: tier})
}

// recordKeyed gathers the changes that the rank holds a block whose key has just become
// known.
func (r *rankIndex) recordKeyed(s *slot) {
	s.held[live].each(func(t kvcache.Tier) { r.recordStored(s.key, t) })
}

// recordRemoved gathers the change that the rank no longer holds a block.
func (r *rankIndex) recordRemoved(key uint64, tier kvcache.Tier) {
	x := r.index
	if x.holders != nil {
		h := holder{key, tier}
		if x.holders[h]--; x.holders[h] > 0 {
			return
		}
		delete(x.holders, h)
	}
	x.changes = append(x.changes, decider.BlockChange{Key: key, Tier: tier})
}

// hasBatches reports whether any batch has arrived.
func (r *rankIndex) hasBatches() bool { return r.confirming || r.snapshots[live].next > 0 }

// countFrom1 notes that the engine's first batch has number 1, as in some engines.
// Nothing proves that there was no batch 0, but no gap is reported either. It takes the
// lock.
func (r *rankIndex) countFrom1() {
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	if a := r.gapless(); a.next == 0 {
		a.next, a.fresh, a.complete = 1, true, false
	}
}

// applyLive applies the next batch to the live snapshot. It takes the lock.
func (r *rankIndex) applyLive(number uint64, payload []byte) error {
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	err := r.apply(live, number, payload)
	switch {
	case err != nil:
		r.closeConfirmed() // a replay would fail on the same batch
	case r.confirming:
		r.buffer(number, payload)
		r.advanceConfirmed()
	}
	x.flush()
	return err
}

// apply applies a batch to a snapshot. A batch that cannot be read empties it.
func (r *rankIndex) apply(which int, number uint64, payload []byte) error {
	r.target = which
	err := readBatch(payload, &r.event, r.applyEvent)
	switch {
	case r.table.used-r.table.idle > maxBlocks:
		r.closeConfirmed()
		r.invalidate(live)
		r.table, err = table{}, errTooMany
	case err != nil:
		r.invalidate(which)
	}
	r.boundSlow()
	r.table.evictIdle(!r.snapshots[live].complete)
	r.index.status.Batches++
	a := &r.snapshots[which]
	a.next, a.sum, a.fresh = number+1, xxhash.Sum64(payload), false
	return err
}

// reset starts over with an empty cache.
func (r *rankIndex) reset() {
	r.closeConfirmed()
	r.clearSnapshot(live)
	r.snapshots[live] = snapshot{complete: true}
	r.grouped, r.removesSlow, r.chunk = false, false, 0
}
