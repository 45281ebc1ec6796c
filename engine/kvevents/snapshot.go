package kvevents

import (
	"bytes"
	"math"
	"slices"

	"pointsman/decider/kvcache"
)

// buffer keeps a batch until the confirmed snapshot has caught up with it.
func (r *rankIndex) buffer(number uint64, payload []byte) {
	if r.buffered == nil {
		r.buffered = map[uint64][]byte{}
	}
	r.buffered[number] = slices.Clone(payload)
	if r.bufferedBytes += len(payload) + bufferedCost; r.bufferedBytes <= maxBuffered {
		return
	}
	if r.disconnected {
		r.resetConfirmed()
	} else {
		r.closeConfirmed()
	}
}

// dropBuffered drops the buffered batches numbered below before.
func (r *rankIndex) dropBuffered(before uint64) {
	for n, payload := range r.buffered {
		if n < before {
			r.bufferedBytes -= len(payload) + bufferedCost
			delete(r.buffered, n)
		}
	}
}

// advanceConfirmed applies buffered batches to the confirmed snapshot, up to the
// first that is missing, once all of them are known to be of this run. When it has
// caught up, the confirmed snapshot replaces the live one.
func (r *rankIndex) advanceConfirmed() {
	b := &r.snapshots[confirmed]
	for r.confirming && r.suspectBefore == 0 {
		payload, ok := r.buffered[b.next]
		if !ok {
			break
		}
		r.bufferedBytes -= len(payload) + bufferedCost
		delete(r.buffered, b.next)
		_ = r.apply(confirmed, b.next, payload)
	}
	if r.confirming && !r.disconnected && b.next == r.snapshots[live].next && r.suspectBefore == 0 {
		r.adoptConfirmed()
	}
}

// applyReplayed applies a batch of a replay while there is a confirmed snapshot; first is
// the number of the replay's first batch. It takes the lock.
func (r *rankIndex) applyReplayed(number uint64, payload []byte, first uint64) error {
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	had := r.buffered[number]
	if had != nil {
		if !bytes.Equal(had, payload) {
			return errRestarted
		}
		r.trustAfter(number)
	}
	if number == first {
		r.skipTo(number)
	}
	if r.suspectBefore > 0 && number >= r.suspectBefore {
		// The replay confirms no batch from before the connection broke.
		if first > 0 {
			r.restartConfirmed(first)
		}
		r.suspectBefore = 0
	}
	var err error
	switch {
	case !r.confirming: // the confirmed snapshot was given up
		err = r.apply(live, number, payload)
	case had == nil:
		r.buffer(number, payload)
	}
	r.advanceConfirmed()
	x.flush()
	return err
}

// trustAfter notes that the batch of that number is of this run of the engine, and
// so are all buffered ones.
func (r *rankIndex) trustAfter(number uint64) {
	if number < r.suspectBefore {
		r.suspectBefore = 0
	}
}

// skipTo notes that the engine no longer keeps the batches below number.
func (r *rankIndex) skipTo(number uint64) {
	from := number // the batch after the last one that is missing for good
	for ; from > r.snapshots[confirmed].next && r.buffered[from-1] != nil; from-- {
		if from == r.suspectBefore {
			break
		}
	}
	switch {
	case from == r.snapshots[confirmed].next && from != r.suspectBefore:
	case !r.disconnected && from > r.snapshots[live].next:
		r.closeConfirmed()
		r.invalidate(live)
		r.snapshots[live].next = from
	default:
		r.restartConfirmed(from)
	}
}

// restartConfirmed empties the confirmed snapshot and restarts it at the batch of
// that number: one before it is missing for good.
func (r *rankIndex) restartConfirmed(number uint64) {
	r.invalidate(confirmed)
	r.snapshots[confirmed].next, r.snapshots[confirmed].fresh = number, true
	r.dropBuffered(number)
	if r.suspectBefore <= number {
		r.suspectBefore = 0
	}
}

// lostBefore notes that batches below number are missing. The live snapshot
// restarts empty at number, as they may have removed any block. replayable means
// that a replay may deliver them later. It takes the lock.
func (r *rankIndex) lostBefore(number uint64, replayable bool) {
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if replayable {
		r.openConfirmed()
	}
	r.invalidate(live)
	r.snapshots[live].next = number
	x.flush()
}

// disconnect notes that the connection broke: what was missed, and whether the
// engine restarted, is not known yet. It takes the lock.
func (r *rankIndex) disconnect() {
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.disconnected {
		return
	}
	if r.confirming && r.suspectBefore > 0 {
		r.resetConfirmed() // a second doubt about the run is not tracked
	}
	r.openConfirmed()
	r.invalidate(live)
	r.disconnected, r.suspectBefore = true, r.snapshots[live].next
	x.flush()
}

// resync ends the disconnected state: number is that of the batch that has just
// arrived. It takes the lock.
func (r *rankIndex) resync(number uint64) {
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	if number < r.suspectBefore {
		r.resetConfirmed()
	}
	r.disconnected = false
	r.snapshots[live].next = number
	r.advanceConfirmed() // number may be the batch that was expected
}

// openConfirmed copies the live snapshot to the confirmed one, unless there is one.
func (r *rankIndex) openConfirmed() {
	if r.confirming {
		return
	}
	r.confirming = true
	r.snapshots[confirmed] = r.snapshots[live]
	r.table.each(func(s *slot) {
		for t := kvcache.GPU; t <= kvcache.Disk; t++ {
			r.table.set(s, confirmed, t, s.held[live]&bit(t) != 0)
		}
	})
}

// adoptConfirmed replaces the live snapshot by the confirmed one, which knows more.
func (r *rankIndex) adoptConfirmed() {
	r.snapshots[live] = r.snapshots[confirmed]
	r.table.each(func(s *slot) {
		for t := kvcache.GPU; t <= kvcache.Disk; t++ {
			held := s.held[confirmed]&bit(t) != 0
			switch changed := r.table.set(s, live, t, held); {
			case changed && held:
				r.recordStored(s.key, t)
			case changed:
				r.recordRemoved(s.key, t)
			}
		}
	})
	r.closeConfirmed()
}

// closeConfirmed drops the confirmed snapshot and the buffered batches.
func (r *rankIndex) closeConfirmed() {
	if r.confirming {
		r.clearSnapshot(confirmed)
	}
	r.confirming, r.disconnected, r.suspectBefore = false, false, 0
	r.buffered, r.bufferedBytes = nil, 0
}

// invalidate empties a snapshot whose blocks may be gone. The table still
// remembers blocks that are in no snapshot, up to a bound.
func (r *rankIndex) invalidate(which int) {
	if which == live {
		r.index.status.Rebuilt++
	}
	r.clearSnapshot(which)
	r.snapshots[which].complete = false
}

// clearSnapshot removes all blocks from a snapshot, on whichever tier they are: engines
// report the clearing of slower tiers in no other way.
func (r *rankIndex) clearSnapshot(which int) {
	r.table.each(func(s *slot) {
		for t := kvcache.GPU; t <= kvcache.Disk; t++ {
			if s.held[which]&bit(t) != 0 && r.table.set(s, which, t, false) {
				r.recordRemoved(s.key, t)
			}
		}
	})
}

// engineRestarted notes that the engine has restarted since the last batch that
// follows all others without a gap. It takes the lock.
func (r *rankIndex) engineRestarted() {
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.confirming {
		r.resetConfirmed()
		return
	}
	x.status.Rebuilt++
	r.reset()
	x.flush()
}

// resetConfirmed restarts the confirmed snapshot at batch 0 with an empty cache.
func (r *rankIndex) resetConfirmed() {
	r.clearSnapshot(confirmed)
	r.snapshots[confirmed] = snapshot{complete: true}
	if r.disconnected || r.suspectBefore == 0 {
		r.suspectBefore = math.MaxUint64
	}
	r.dropBuffered(r.suspectBefore)
	r.suspectBefore = 0
}

// replayDone notes that a replay has delivered all batches. It takes the lock.
func (r *rankIndex) replayDone() {
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.disconnected && r.suspectBefore == 0 {
		r.adoptConfirmed()
		x.flush()
	}
}

// gapless is the snapshot that no missing batch precedes.
func (r *rankIndex) gapless() *snapshot {
	if r.confirming {
		return &r.snapshots[confirmed]
	}
	return &r.snapshots[live]
}
