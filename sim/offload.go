package sim

import (
	"container/list"
	"time"
)

// hostCache is the memory of the host for blocks that the GPU has evicted, least recently
// evicted or copied back first.
type hostCache struct {
	size   int // blocks
	order  *list.List
	places map[uint64]*list.Element
	// stored and removed, unless nil, are called for each block that comes and goes.
	stored, removed func(key uint64)
}

func newHostCache(blocks int) *hostCache {
	return &hostCache{size: blocks, order: list.New(), places: map[uint64]*list.Element{}}
}

// keep adds a block that leaves the GPU.
func (h *hostCache) keep(key uint64) {
	if h.touch(key) {
		return
	}
	if h.order.Len() == h.size {
		oldest := h.order.Remove(h.order.Front()).(uint64)
		delete(h.places, oldest)
		if h.removed != nil {
			h.removed(oldest)
		}
	}
	h.places[key] = h.order.PushBack(key)
	if h.stored != nil {
		h.stored(key)
	}
}

// touch makes a block the last to go, and reports whether it is there.
func (h *hostCache) touch(key uint64) bool {
	at := h.places[key]
	if at != nil {
		h.order.MoveToBack(at)
	}
	return at != nil
}

// match counts the leading keys that are present, and makes them the last to be evicted.
func (h *hostCache) match(keys []uint64) (n int) {
	for _, key := range keys {
		if !h.touch(key) {
			break
		}
		n++
	}
	return n
}

// load starts copying the n blocks of j after the first hits to the GPU, behind the copies
// already in progress.
func (e *Engine) load(j *Job, hits, n int, at time.Duration) {
	j.hits, j.loading = hits, n
	e.linkFree = max(e.linkFree, at) + time.Duration(float64(n*e.blockSize)/e.transferSpeed*float64(time.Second))
	j.ready = e.linkFree
	e.loading++
}

// endLoads caches the blocks that have been copied by at. Their jobs are computed from
// then on.
func (e *Engine) endLoads(at time.Duration) {
	if e.loading == 0 {
		return
	}
	for _, j := range e.prefills {
		if j.loading > 0 && j.ready <= at {
			e.store(j, j.hits, j.hits+j.loading)
			e.loaded(j)
		}
	}
}

// loaded notes that nothing is copied for j any more.
func (e *Engine) loaded(j *Job) {
	if j.loading > 0 {
		j.loading = 0
		e.loading--
	}
}

// nextLoad is when the next copy ends.
func (e *Engine) nextLoad() time.Duration {
	first := time.Duration(-1)
	for _, j := range e.prefills {
		if j.loading > 0 && (first < 0 || j.ready < first) {
			first = j.ready
		}
	}
	return first
}

// FollowOffloaded adds callbacks: stored for each block that is kept in the memory of the
// host, and removed for each that leaves it.
func (e *Engine) FollowOffloaded(stored, removed func(key uint64)) {
	h := e.host
	if h == nil {
		return
	}
	both := func(before, after func(key uint64)) func(key uint64) {
		if before == nil {
			return after
		}
		return func(key uint64) { before(key); after(key) }
	}
	h.stored, h.removed = both(h.stored, stored), both(h.removed, removed)
}
