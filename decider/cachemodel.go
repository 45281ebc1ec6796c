package decider

import (
	"time"

	"pointsman/decider/kvcache"
)

// configureCaches keeps a model of the replicas' KV caches while the policy
// looks at prompts. The caller holds the lock.
func (p *Pool) configureCaches() {
	switch wanted := p.usesPrefix.Load(); {
	case wanted && p.caches == nil:
		p.caches = new(kvcache.Model)
	case !wanted:
		p.closeCaches()
		p.view.depth, p.view.best = nil, 0
	}
}

// closeCaches drops the model of all caches: nobody uses it, or another policy
// has other block keys.
func (p *Pool) closeCaches() {
	if p.caches == nil {
		return
	}
	p.caches.Close()
	p.caches = nil
	for _, r := range p.replicas {
		r.cache = nil
	}
}

// syncCaches gives every member of list a Cache and closes those of the replicas
// that have left. It is called before list becomes the membership, with the
// slots assigned.
func (p *Pool) syncCaches(list []*Replica) {
	if p.caches == nil {
		return
	}
	for _, r := range p.replicas {
		if r.cache != nil && r.index < 0 {
			p.caches.Remove(r.cache)
			r.cache = nil
		}
	}
	for _, r := range list {
		if r.cache == nil {
			r.cache = p.caches.Add(r.slot, p.cacheBlocks(r))
		} else {
			r.cache.SetCapacity(p.cacheBlocks(r))
		}
	}
}

// cacheBlocks is the size of r's cache in blocks.
func (p *Pool) cacheBlocks(r *Replica) int { return r.CacheTokens() / p.view.BlockTokens }

// resizeCache gives the model of r's cache the size that is now known.
func (p *Pool) resizeCache(r *Replica) {
	if r.cache != nil {
		r.cache.SetCapacity(p.cacheBlocks(r))
	}
}

// observeCacheSize notes how much r's replica has in its cache at one time: at
// least the prompts of the requests that had their first token and have not
// ended.
func (p *Pool) observeCacheSize(r *Replica) {
	if seen := r.cache.Running() * p.view.BlockTokens; seen > r.cacheSeen {
		r.cacheSeen = seen
		p.resizeCache(r)
	}
}

// resetCacheSize forgets how much was seen in r's cache: the engine is another
// one, or requests that seemed to run there had ended.
func (p *Pool) resetCacheSize(r *Replica) {
	if r.cacheSeen != 0 {
		r.cacheSeen = 0
		p.resizeCache(r)
	}
}

// matchPrefix finds out how much of the request's prompt each replica has.
func (p *Pool) matchPrefix(r *Request) {
	v := &p.view
	v.input, v.blocks, v.rateDepth = r.Input, r.Blocks, -1
	if p.caches != nil {
		v.depth, v.best = p.caches.Match(r.Blocks, v.depth)
	}
}

// reserveBlocks tells the cache model that the request is on its way to its
// replica.
func (p *Pool) reserveBlocks(v *reservation, now time.Duration) {
	v.cache, v.pinned = v.replica.cache, false
	if v.cache == nil {
		return
	}
	v.cache.Reserve(v.request.Blocks, kvcache.Milliseconds(now))
	if v.started {
		p.pinBlocks(v)
	}
}

// pinBlocks tells the cache model that the prompt of v is computed. Its last,
// partial block and its output have no key.
func (p *Pool) pinBlocks(v *reservation) {
	if v.cache == nil || v.cache.Closed() || v.pinned {
		return
	}
	p.observeCacheSize(v.replica) // without v: an engine refuses at once what is too long for it
	v.pinned = true
	v.unkeyed = max(0, v.input/p.view.BlockTokens-len(v.request.Blocks)) + 1
	if v.unkeyed > v.cache.Capacity() {
		v.unkeyed = 0 // the engine refused it, or the estimate is of no use
	}
	v.cache.Pin(v.request.Blocks, v.unkeyed)
}

// releaseBlocks tells the cache model that the request has left the replica.
// What was computed of it stays in the cache.
func (v *reservation) releaseBlocks() {
	switch c := v.cache; {
	case c == nil || c.Closed():
	case v.pinned:
		c.Unpin(v.request.Blocks, v.unkeyed)
	default:
		c.Cancel(v.request.Blocks)
	}
	v.cache = nil
}

// cached is how many of the request's prompt tokens its replica has already.
func (p *Pool) cached(v *reservation) int {
	c := v.replica.cache
	if c == nil {
		return 0
	}
	return max(0, min(c.Match(v.request.Blocks)*p.view.BlockTokens, v.input-1))
}
