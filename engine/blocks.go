package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/cespare/xxhash/v2"

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
	Rebuilt uint64 `json:"rebuilt"` // times that all was forgotten: no replay could fill a gap, or the engine started anew
	Orphans uint64 `json:"orphans"` // blocks whose predecessor is not known
	Strange uint64 `json:"strange"` // blocks of another size than the policy's, or with numbered adapters
}

// blockRank is one KV cache of a replica, as its events tell.
type blockRank struct {
	of    *blockImage
	table blockTable
	event blockEvent

	seen bool   // a batch was taken in
	last uint64 // its number
	sum  uint64 // a hash of it
	// whole tells that no batch was missed since the cache was last empty.
	whole bool
}

// errRestarted tells that the engine numbers its batches anew.
var errRestarted = errors.New("the engine has started anew")

// newRank adds a rank whose cache is not known yet.
func (m *blockImage) newRank() *blockRank {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &blockRank{of: m}
	m.ranks = append(m.ranks, r)
	if len(m.ranks) == 2 {
		m.count = map[uint64]int32{}
		m.ranks[0].table.each(func(key uint64) { m.count[key]++ })
	}
	return r
}

// forget drops a rank and what it had.
func (m *blockImage) forget(r *blockRank) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.drop()
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
		m.pool.UnfollowBlocks(m.replica, m.follower)
		m.follower = 0
	}
}

// restart tells the pool everything. The caller holds the lock.
func (m *blockImage) restart() {
	m.follower = m.pool.FollowBlocks(m.replica)
	m.changes = m.changes[:0]
	for _, r := range m.ranks {
		r.table.each(func(key uint64) {
			m.changes = append(m.changes, decider.BlockChange{Key: key, Stored: true})
		})
	}
	m.pool.ChangeBlocks(m.replica, m.follower, m.changes)
	m.changes = nil // it is large, and rarely needed
}

// tell tells the pool the changes gathered. The caller holds the lock.
func (m *blockImage) tell() {
	if m.follower == 0 || len(m.changes) == 0 {
		m.changes = m.changes[:0]
		return
	}
	if !m.pool.ChangeBlocks(m.replica, m.follower, m.changes) {
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
		s.Blocks += r.table.used
	}
	return s
}

// stored notes a block that the rank did not have.
func (r *blockRank) stored(key uint64) {
	m := r.of
	if m.count != nil {
		if m.count[key]++; m.count[key] > 1 {
			return
		}
	}
	m.changes = append(m.changes, decider.BlockChange{Key: key, Stored: true})
}

// removed notes a block that the rank has no more.
func (r *blockRank) removed(key uint64) {
	m := r.of
	if m.count != nil {
		if m.count[key]--; m.count[key] > 0 {
			return
		}
		delete(m.count, key)
	}
	m.changes = append(m.changes, decider.BlockChange{Key: key})
}

// next says what is to be done with the batch of that number that has come.
func (r *blockRank) next(number uint64) (take, gap bool) {
	return !r.seen || number == r.last+1, r.seen && number > r.last+1
}

// take takes a batch in. One that is not understood makes the rank forget all.
func (r *blockRank) take(number uint64, payload []byte) error {
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	err := readBatch(payload, &r.event, r.on)
	if err != nil {
		r.drop()
		m.view.Rebuilt++
	}
	m.tell()
	m.view.Batches++
	if !r.seen && number == 0 {
		r.whole = true
	}
	r.seen, r.last, r.sum = true, number, xxhash.Sum64(payload)
	return err
}

// same reports whether a batch of the number of the last one is that one.
func (r *blockRank) same(payload []byte) bool { return xxhash.Sum64(payload) == r.sum }

// reset forgets all: the next batch is taken for the first one.
func (r *blockRank) reset() {
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	r.drop()
	m.view.Rebuilt++
	r.seen = false
}

// drop forgets the blocks and tells so. The caller holds the lock.
func (r *blockRank) drop() {
	r.table.each(r.removed)
	r.table.clear()
	r.of.tell()
	r.whole = false
}

// on takes one event in.
func (r *blockRank) on(e *blockEvent) {
	m := r.of
	if e.kind == eventCleared {
		r.table.each(r.removed)
		r.table.clear()
		r.whole = true
		return
	}
	if !e.onGPU() || e.group != 0 {
		return
	}
	if e.kind == eventRemoved {
		for _, h := range e.hashes {
			if key, last := r.table.remove(h); last {
				r.removed(key)
			}
		}
		return
	}
	n := uint64(len(e.hashes))
	if e.size != m.blockTokens || e.numbered && e.lora == nil || len(e.tokens) < len(e.hashes)*e.size {
		m.view.Strange += n
		return
	}
	before, ok := uint64(0), true
	if e.hasParent {
		before, ok = r.table.key(e.parent)
	}
	if !ok {
		m.view.Orphans += n
		return
	}
	for i, h := range e.hashes {
		var single, rest []byte
		if i < len(e.extra) {
			single, rest = otherKeys(e.extra[i], e.lora)
		}
		if i == 0 && !e.hasParent {
			if single != nil {
				rest = nil // the salt, which the seed has
			}
			before = m.pool.PromptSeed(e.lora, single)
		}
		before = decider.TokenBlock(before, e.tokens[i*e.size:(i+1)*e.size])
		if rest != nil {
			before = decider.Mix(before, rest)
		}
		if r.table.add(h, before) {
			r.stored(before)
		}
	}
}
