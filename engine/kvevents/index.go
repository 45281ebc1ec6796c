// Package kvevents follows the KV-cache events that engines publish over ZeroMQ,
// and keeps for each replica the table of the blocks that these prove to be
// cached.
package kvevents

import (
	"context"
	"sync"

	"pointsman/decider"
)

// Index gathers what the ranks of one replica say of their KV caches and
// tells the pool. It is safe for concurrent use.
type Index struct {
	pool        *decider.Pool
	replica     string
	blockTokens int

	mu       sync.Mutex
	follower uint64           // 0 = the pool is not told
	ranks    []*blockRank     // those that are followed
	count    map[uint64]int32 // of ranks that have a block; nil with only one
	changes  []decider.BlockChange
	view     Status
}

// Status is what is known of the KV-cache events of one replica.
type Status struct {
	Online  int    `json:"online"`  // ranks that are connected
	Blocks  int    `json:"blocks"`  // in the caches of all ranks
	Batches uint64 `json:"batches"` // taken in
	Gaps    uint64 `json:"gaps"`    // batches were missed
	Rebuilt uint64 `json:"rebuilt"` // times that no block was sure any more: no replay could fill a gap, or the engine started anew
	Orphans int    `json:"orphans"` // blocks that were told of, but not the ones before them
	Strange uint64 `json:"strange"` // blocks of another size than the policy's, or with numbered adapters
}

// NewIndex returns an index of a replica of pool, whose policy looks at blocks of
// so many tokens.
func NewIndex(pool *decider.Pool, replica string, blockTokens int) *Index {
	return &Index{pool: pool, replica: replica, blockTokens: blockTokens}
}

// Follow follows one more rank of the replica until ctx ends: it subscribes at
// the address events, and asks for what it has missed at the address replay ("" =
// nowhere). log is called with what goes wrong.
func (m *Index) Follow(ctx context.Context, events, replay string, log func(msg string, err error)) {
	f := &blockFollower{rank: m.newRank(), events: events, replay: replay, log: log}
	f.run(ctx)
}

// newRank adds a rank whose cache is not known yet.
func (m *Index) newRank() *blockRank {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &blockRank{of: m, accounts: [2]account{{exact: true}}}
	m.ranks = append(m.ranks, r)
	if len(m.ranks) == 2 {
		m.count = map[uint64]int32{}
		m.ranks[0].table.keys(func(key uint64) { m.count[key]++ })
	}
	return r
}

// forget drops a rank and what it had.
func (m *Index) forget(r *blockRank) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.void()
	m.tell()
	for i, x := range m.ranks {
		if x == r {
			m.ranks = append(m.ranks[:i], m.ranks[i+1:]...)
			break
		}
	}
}

// online notes that one more rank is connected, or one less.
func (m *Index) online(more int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view.Online += more
}

// begin tells the pool to go by what it is told from now on.
func (m *Index) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.follower == 0 {
		m.restart()
	}
}

// end tells the pool to predict again, unless some rank is connected.
func (m *Index) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.follower != 0 && m.view.Online == 0 {
		m.pool.Engine(m.replica).UnfollowBlocks(m.follower)
		m.follower = 0
	}
}

// restart tells the pool everything. The caller holds the lock.
func (m *Index) restart() {
	m.follower = m.pool.Engine(m.replica).FollowBlocks()
	m.changes = m.changes[:0]
	for _, r := range m.ranks {
		r.table.keys(func(key uint64) {
			m.changes = append(m.changes, decider.BlockChange{Key: key, Stored: true})
		})
	}
	m.pool.Engine(m.replica).ChangeBlocks(m.follower, m.changes)
	m.changes = nil // it is large, and rarely needed
}

// tell tells the pool the changes gathered. The caller holds the lock.
func (m *Index) tell() {
	if m.follower == 0 || len(m.changes) == 0 {
		m.changes = m.changes[:0]
		return
	}
	if !m.pool.Engine(m.replica).ChangeBlocks(m.follower, m.changes) {
		m.restart() // the pool has made its image anew
	}
	m.changes = m.changes[:0]
}

// Status returns what is known.
func (m *Index) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.view
	for _, r := range m.ranks {
		s.Blocks += r.table.known
		s.Orphans += r.table.orphans
	}
	return s
}
