package decider

import (
	"time"

	"pointsman/decider/kvcache"
)

// cacheModel is what the pool believes its replicas' KV caches hold. It keeps a
// kvcache.Model while the policy looks at prompts. It lives under the pool's lock.
type cacheModel struct {
	model        *kvcache.Model // nil = the policy does not look at prompts
	blockTokens  int            // tokens in a block of Request.Blocks
	cpuTokens    int            // what a replica keeps after it has left the GPU, where that is predicted
	followers    uint64         // given out by Engine.FollowBlocks so far
	extrapolated []uint64       // scratch of extrapolate
}

// enable keeps a model from now on, or none.
func (m *cacheModel) enable(on bool, replicas []*Replica) {
	switch {
	case !on:
		m.close(replicas)
	case m.model == nil:
		m.model = new(kvcache.Model)
	}
}

// close drops the model: nobody uses it, or another policy has other block keys.
func (m *cacheModel) close(replicas []*Replica) {
	if m.model == nil {
		return
	}
	m.model.Close()
	m.model = nil
	for _, r := range replicas {
		r.cache = nil
	}
}

// setReplicas gives each member of list a Cache and closes those of the replicas
// of old that have left. The indexes and slots of both are set already.
func (m *cacheModel) setReplicas(old, list []*Replica) {
	if m.model == nil {
		return
	}
	for _, r := range old {
		if r.cache != nil && r.index < 0 {
			m.model.Remove(r.cache)
			r.cache = nil
		}
	}
	for _, r := range list {
		if r.cache == nil {
			r.cache = m.model.Add(r.slot, m.blocks(r))
		}
		m.resize(r)
	}
}

// setBlockTokens changes how many tokens a block has.
func (m *cacheModel) setBlockTokens(n int, replicas []*Replica) {
	m.blockTokens = n
	for _, r := range replicas {
		m.resize(r)
	}
}

// blocks is the size of r's cache in blocks.
func (m *cacheModel) blocks(r *Replica) int { return r.CacheTokens() / m.blockTokens }

// resize gives r's Cache the size that is now known.
func (m *cacheModel) resize(r *Replica) {
	if r.cache != nil {
		r.cache.Offload(m.cpuTokens / m.blockTokens)
		r.cache.SetCapacity(m.blocks(r))
	}
}

// observeSize notes how much r has in its cache at one time: at least the prompts
// of the requests that had their first token and have not ended.
func (m *cacheModel) observeSize(r *Replica) {
	if seen := r.cache.Running() * m.blockTokens; seen > r.cacheSeen {
		r.cacheSeen = seen
		m.resize(r)
	}
}

// resetSize forgets how much was seen in r's cache: the engine is another one, or
// requests that seemed to run there had ended.
func (m *cacheModel) resetSize(r *Replica) {
	if r.cacheSeen != 0 {
		r.cacheSeen = 0
		m.resize(r)
	}
}

// restarted empties r's Cache: its engine has restarted.
func (m *cacheModel) restarted(r *Replica) {
	m.resetSize(r)
	if r.cache != nil {
		r.cache.Clear()
	}
}

// reset empties r's Cache. From now on follower reports what it holds; 0 = nobody does.
func (m *cacheModel) reset(r *Replica, follower uint64) {
	r.cache = m.model.Reset(r.cache, follower)
	m.resize(r)
}

// ask counts r, which waits, for the blocks of its prompt that some replica has: the demand
// for them is there before r is sent.
func (m *cacheModel) ask(r *Request, now time.Duration) {
	if m.model != nil {
		r.asked = m.model.Ask(r.Blocks, kvcache.Milliseconds(now))
	}
}

// reserve notes that the request of v is on its way to its replica.
func (m *cacheModel) reserve(v *reservation, now time.Duration) {
	v.cache, v.pinned = v.replica.cache, false
	if v.cache == nil {
		return
	}
	v.cache.Reserve(v.request.Blocks, v.request.asked, kvcache.Milliseconds(now))
	if v.started {
		m.pin(v)
	}
}

// pin notes that the prompt of v is computed. Its last, partial block and its
// output have no key.
func (m *cacheModel) pin(v *reservation) {
	if v.cache == nil || v.cache.Closed() || v.pinned {
		return
	}
	m.observeSize(v.replica) // without v: an engine refuses at once what is too long for it
	v.pinned = true
	v.unkeyed = max(0, v.input/m.blockTokens-len(v.request.Blocks)) + 1
	if v.unkeyed > v.cache.Capacity() {
		v.unkeyed = 0 // the engine refused it, or the estimate is of no use
	}
	v.cache.Pin(v.request.Blocks, v.unkeyed)
}

// release notes that the request of v has left its replica. The computed part of its prompt
// stays in the cache.
func (m *cacheModel) release(v *reservation) {
	switch c := v.cache; {
	case c == nil || c.Closed():
	case v.pinned:
		c.Unpin(v.request.Blocks, v.unkeyed)
	default:
		c.Cancel(v.request.Blocks)
	}
	v.cache = nil
}

// cached returns how many prompt tokens of v its replica has already, on its GPU or worth
// as much. It records those on slower tiers in v.
func (m *cacheModel) cached(v *reservation, load *loadEstimate) int {
	c := v.replica.cache
	v.slow = [kvcache.Slower]int{}
	if c == nil || v.from != "" && len(v.request.Blocks) == 0 {
		return v.cachedThere
	}
	gpu, slow := c.MatchTiers(v.request.Blocks)
	if slow != (kvcache.Slow{}) {
		v.slow = slowTokens(v.input, gpu, slow, m.blockTokens)
	}
	return load.worth(v.replica, v.input, gpu, slow, m.blockTokens)
}
