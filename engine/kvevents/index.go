// Package kvevents follows the KV-cache events that engines publish over ZeroMQ.
// For each replica it keeps an index of the blocks that the events prove to be
// cached, and reports each change to the pool. Lost batches are asked for again;
// until a replay delivers them, the index holds only what the later batches prove.
package kvevents

import (
	"context"
	"slices"
	"sync"

	"pointsman/decider"
)

// Index is what the events of one replica's ranks prove to be in its KV cache. It
// reports changes to the pool. It is safe for concurrent use: its lock also guards
// the rankIndexes and their tables. It calls the pool with the lock held.
type Index struct {
	pool        *decider.Pool
	replica     string
	blockTokens int

	mu       sync.Mutex
	followID uint64                // of the pool; 0 = the pool predicts the cache itself
	ranks    []*rankIndex          // the ranks that are followed
	holders  map[uint64]int32      // number of ranks that hold a block, by key; nil with one rank
	changes  []decider.BlockChange // not reported yet
	status   Status
}

// Status is what is known of the KV-cache events of one replica.
type Status struct {
	Online  int    `json:"online"`  // ranks that are connected
	Blocks  int    `json:"blocks"`  // in the caches of all ranks
	Batches uint64 `json:"batches"` // received and applied
	Gaps    uint64 `json:"gaps"`    // times that batches were missing
	Rebuilt uint64 `json:"rebuilt"` // times that the index was emptied: no replay could fill a gap, or the engine restarted
	Orphans int    `json:"orphans"` // blocks whose predecessors are unknown
	Strange uint64 `json:"strange"` // blocks of another size than the policy's, or of an adapter known by number only
}

// NewIndex returns the index of a replica of pool. The pool's policy compares
// blocks of blockTokens tokens.
func NewIndex(pool *decider.Pool, replica string, blockTokens int) *Index {
	return &Index{pool: pool, replica: replica, blockTokens: blockTokens}
}

// Follow follows one more rank of the replica until ctx ends. It subscribes at the
// address events (host:port) and asks for lost batches at the address replay, if
// that is not empty. It reconnects for ever, and calls log with each failure.
func (x *Index) Follow(ctx context.Context, events, replay string, log func(msg string, err error)) {
	f := &subscriber{rank: x.newRank(), events: events, replay: replay, log: log}
	f.run(ctx)
}

// newRank adds a rank, whose cache is taken to be empty.
func (x *Index) newRank() *rankIndex {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := &rankIndex{index: x, snapshots: [2]snapshot{{complete: true}}}
	x.ranks = append(x.ranks, r)
	if len(x.ranks) == 2 {
		x.holders = map[uint64]int32{}
		x.ranks[0].table.keys(func(key uint64) { x.holders[key]++ })
	}
	return r
}

// removeRank removes a rank and its blocks.
func (x *Index) removeRank(r *rankIndex) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r.reset()
	x.flush()
	x.ranks = slices.DeleteFunc(x.ranks, func(other *rankIndex) bool { return other == r })
}

// addOnline adds n to the number of ranks that are connected.
func (x *Index) addOnline(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.status.Online += n
}

// startFollowing makes the pool go by the events instead of its own prediction.
func (x *Index) startFollowing() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.followID == 0 {
		x.resendAll()
	}
}

// stopFollowing makes the pool predict again, unless a rank is connected.
func (x *Index) stopFollowing() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.followID != 0 && x.status.Online == 0 {
		x.pool.Engine(x.replica).UnfollowBlocks(x.followID)
		x.followID = 0
	}
}

// resendAll reports the whole index to the pool. The caller holds the lock.
func (x *Index) resendAll() {
	x.followID = x.pool.Engine(x.replica).FollowBlocks()
	x.changes = x.changes[:0]
	for _, r := range x.ranks {
		r.table.keys(func(key uint64) {
			x.changes = append(x.changes, decider.BlockChange{Key: key, Stored: true})
		})
	}
	x.pool.Engine(x.replica).ChangeBlocks(x.followID, x.changes)
	x.changes = nil // large, and rarely needed
}

// flush reports the gathered changes to the pool. The caller holds the lock.
func (x *Index) flush() {
	if x.followID == 0 || len(x.changes) == 0 {
		x.changes = x.changes[:0]
		return
	}
	if !x.pool.Engine(x.replica).ChangeBlocks(x.followID, x.changes) {
		x.resendAll() // the pool has replaced its cache model
	}
	x.changes = x.changes[:0]
}

// Status returns the present counts.
func (x *Index) Status() Status {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.status
	for _, r := range x.ranks {
		s.Blocks += r.table.liveBlocks
		s.Orphans += r.table.orphans
	}
	return s
}
