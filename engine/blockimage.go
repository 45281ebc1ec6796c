package engine

import (
	"context"
	"sync"

	"pointsman/decider"
)

// blockImage gathers what the ranks of one replica say of their KV caches and
// tells the pool. It is safe for concurrent use.
type blockImage struct {
	pool        *decider.Pool
	replica     string
	blockTokens int
	stop        context.CancelFunc // ends its followers

	mu       sync.Mutex
	follower uint64           // 0 = the pool is not told
	ranks    []*blockRank     // those that are followed
	count    map[uint64]int32 // of ranks that have a block; nil with only one
	changes  []decider.BlockChange
	view     BlockStatus
}

// BlockStatus is what is known of the KV-cache events of one replica.
type BlockStatus struct {
	Online  int    `json:"online"`  // ranks that are connected
	Blocks  int    `json:"blocks"`  // in the caches of all ranks
	Batches uint64 `json:"batches"` // taken in
	Gaps    uint64 `json:"gaps"`    // batches were missed
	Rebuilt uint64 `json:"rebuilt"` // times that no block was sure any more: no replay could fill a gap, or the engine started anew
	Orphans int    `json:"orphans"` // blocks that were told of, but not the ones before them
	Strange uint64 `json:"strange"` // blocks of another size than the policy's, or with numbered adapters
}

// newRank adds a rank whose cache is not known yet.
func (m *blockImage) newRank() *blockRank {
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
func (m *blockImage) forget(r *blockRank) {
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
func (m *blockImage) online(more int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view.Online += more
}

// begin tells the pool to go by what it is told from now on.
func (m *blockImage) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.follower == 0 {
		m.restart()
	}
}

// end tells the pool to predict again, unless some rank is connected.
func (m *blockImage) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.follower != 0 && m.view.Online == 0 {
		m.pool.Engine(m.replica).UnfollowBlocks(m.follower)
		m.follower = 0
	}
}

// restart tells the pool everything. The caller holds the lock.
func (m *blockImage) restart() {
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
func (m *blockImage) tell() {
	if m.follower == 0 || len(m.changes) == 0 {
		m.changes = m.changes[:0]
		return
	}
	if !m.pool.Engine(m.replica).ChangeBlocks(m.follower, m.changes) {
		m.restart() // the pool has made its image anew
	}
	m.changes = m.changes[:0]
}

// status returns what is known.
func (m *blockImage) status() BlockStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.view
	for _, r := range m.ranks {
		s.Blocks += r.table.known
		s.Orphans += r.table.orphans
	}
	return s
}
