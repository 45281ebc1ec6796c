package decider

import "pointsman/decider/kvcache"

// BlockChange is a change of one block of an engine's KV cache.
type BlockChange struct {
	Key    uint64       // as kvcache.AppendKeys makes it
	Stored bool         // else it was removed
	Tier   kvcache.Tier // where
}

// FollowBlocks empties the cache model of the replica; from now on
// it holds what ChangeBlocks reports. The number returned is for ChangeBlocks; 0
// means that the pool keeps no such model, because the replica has left or its
// policy does not look at tokens.
func (e Engine) FollowBlocks() (follower uint64) {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil || p.tokens.Load() == nil {
		return 0
	}
	p.caches.followers++
	p.caches.reset(r, p.caches.followers)
	return p.caches.followers
}

// UnfollowBlocks ends what FollowBlocks began: the cache model is emptied and
// follows predictions again.
func (e Engine) UnfollowBlocks(follower uint64) {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r != nil && r.cache != nil && r.cache.Source() == follower {
		p.caches.reset(r, 0)
	}
}

// ChangeBlocks reports changes of the cache of the replica's engine, in order. It returns
// false if that follower no longer owns the cache model; the caller must then call
// FollowBlocks again.
func (e Engine) ChangeBlocks(follower uint64, changes []BlockChange) bool {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil || r.cache == nil || r.cache.Source() != follower {
		return false
	}
	now := kvcache.Milliseconds(p.clock())
	for _, c := range changes {
		if c.Stored {
			r.cache.StoreOn(c.Tier, c.Key, now)
		} else {
			r.cache.DropFrom(c.Tier, c.Key)
		}
	}
	return true
}
