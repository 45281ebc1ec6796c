// Package kvevents follows the KV-cache events that engines publish over ZeroMQ. For each
// replica it keeps an index of the blocks that the events prove to be cached, and reports
// each change to the pool. It requests lost batches again; until a replay delivers them,
// the index holds only what the later batches prove.
package kvevents

import (
	"context"
	"slices"
	"sync"

	"pointsman/decider"
	"pointsman/decider/kvcache"
)

// Index holds the blocks that the events of one replica's ranks prove to be in its KV
// cache. It reports changes to the pool. It is safe for concurrent use: its lock also
// guards the rankIndexes and their tables. It calls the pool with the lock held.
type Index struct {
	ctx     context.Context // of the connections that engines make; nil = it never ends
	pool    *decider.Pool
	replica string

	mu          sync.Mutex
	blockTokens int
	followID    uint64                // of the pool; 0 = the pool predicts the cache itself
	ranks       []*rankIndex          // the ranks that are followed
	holders     map[holder]int32      // number of ranks that hold a block; nil with one rank
	changes     []decider.BlockChange // not reported yet
	status      Status
	restored    map[string]rankImage // of ranks that are not followed yet
	patience    int                  // how many more times CheckSize lets an overfull index be
}

// holder is a block on a tier.
type holder struct {
	key  uint64
	tier kvcache.Tier
}

// Status describes the KV-cache events of one replica.
type Status struct {
	Online int `json:"online"` // ranks that are connected
	Blocks int `json:"blocks"` // in the caches of all ranks, on their GPUs
	// Offloaded counts those on slower tiers, twice where they are on two.
	Offloaded int    `json:"offloaded_blocks,omitempty"`
	Batches   uint64 `json:"batches"` // received and applied
	Gaps      uint64 `json:"gaps"`    // times that batches were missing
	Rebuilt   uint64 `json:"rebuilt"` // times that the index was emptied: no replay could fill a gap, or the engine restarted
	Orphans   int    `json:"orphans"` // blocks whose predecessors are unknown
	Strange   uint64 `json:"strange"` // blocks of another size than the pool's, or of an adapter known by number only
	// BlockTokens is the size of its blocks, as they are compared.
	BlockTokens int `json:"block_tokens"`
	// Overfull counts how often it reported more blocks than its cache holds.
	Overfull uint64 `json:"overfull,omitempty"`
}

// NewIndex returns the index of a replica of pool. The pool compares blocks of
// blockTokens tokens. ctx ends when another index takes its place.
func NewIndex(ctx context.Context, pool *decider.Pool, replica string, blockTokens int) *Index {
	return &Index{ctx: ctx, pool: pool, replica: replica, blockTokens: blockTokens}
}

// Follow follows one more rank of the replica until ctx ends. It subscribes at the
// address events (host:port) and asks for lost batches at the address replay, if
// that is not empty. It reconnects for ever, and calls log with each failure.
func (x *Index) Follow(ctx context.Context, events, replay string, log func(msg string, err error)) {
	f := &subscriber{rank: x.newRank(events), events: events, replay: replay, log: log}
	f.run(ctx)
}

// newRank adds a rank of that name. Its cache is assumed to be empty unless an earlier life
// knew it. A rank without a name is not remembered.
func (x *Index) newRank(name string) *rankIndex {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := &rankIndex{index: x, name: name, snapshots: [2]snapshot{{complete: true}}}
	x.ranks = append(x.ranks, r)
	if len(x.ranks) == 2 {
		x.holders = map[holder]int32{}
		x.ranks[0].table.keys(func(key uint64, tier kvcache.Tier) { x.holders[holder{key, tier}]++ })
	}
	r.load()
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

// startFollowing makes the pool use the events instead of its own prediction.
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

// adopt notes the size of the engine's blocks, in tokens. If the pool uses that size from
// now on and nothing is known about the cache yet, so does the index. Otherwise its owner
// replaces it. The caller holds the lock.
func (x *Index) adopt(size int) {
	if x.pool.Engine(x.replica).BlockTokens(size) != size {
		return
	}
	for _, r := range x.ranks {
		if r.table.used > r.table.idle {
			return
		}
	}
	for _, r := range x.ranks {
		r.table = table{}
	}
	x.blockTokens = size
	if x.followID == 0 && x.status.Online > 0 {
		x.resendAll()
	}
}

// BlockTokens is the size of the blocks that the index knows.
func (x *Index) BlockTokens() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.blockTokens
}

// The index may hold a little more than the engine's cache, as the two are not compared at
// the same moment. After an index was emptied for holding more, it is not emptied again for
// some checks, twice as many each time.
const (
	sizeSlack     = 1.05
	firstPatience = 60
	lastPatience  = 3600
)

// CheckSize empties the index if it holds more than the engine's cache of cacheTokens can
// hold: then removals were not reported, or blocks were reported twice. It returns whether
// it did. Blocks that the engine still uses come back with the next events.
func (x *Index) CheckSize(cacheTokens int) (overfull bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	blocks := 0
	for _, r := range x.ranks {
		blocks += r.table.liveBlocks
	}
	if cacheTokens <= 0 || float64(blocks*x.blockTokens) <= sizeSlack*float64(cacheTokens) {
		x.patience--
		return false
	}
	if x.patience--; x.patience > 0 {
		return false
	}
	x.status.Overfull++
	x.patience = lastPatience
	if x.status.Overfull < 7 {
		x.patience = min(lastPatience, firstPatience<<(x.status.Overfull-1))
	}
	for _, r := range x.ranks {
		r.closeConfirmed()
		r.invalidate(live)
	}
	x.flush()
	return true
}

// resendAll reports the whole index to the pool. The caller holds the lock.
func (x *Index) resendAll() {
	if o := x.pool.Tokens(); o == nil || o.BlockTokens != x.blockTokens {
		x.followID = 0 // another index takes over
		return
	}
	x.followID = x.pool.Engine(x.replica).FollowBlocks()
	x.changes = x.changes[:0]
	for _, r := range x.ranks {
		r.table.keys(func(key uint64, tier kvcache.Tier) {
			x.changes = append(x.changes, decider.BlockChange{Key: key, Stored: true, Tier: tier})
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
	s.BlockTokens = x.blockTokens
	for _, r := range x.ranks {
		s.Blocks += r.table.liveBlocks
		s.Offloaded += r.table.slowBlocks
		s.Orphans += r.table.orphans
	}
	return s
}
