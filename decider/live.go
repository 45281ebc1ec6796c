package decider

// BlockChange is news of one block of an engine's KV cache.
type BlockChange struct {
	Key    uint64 // as AppendTokenBlocks makes it
	Stored bool   // else it was removed
}

// FollowBlocks begins to keep the image of the replica of that name by what its
// engine says of its blocks, and forgets what was there: ChangeBlocks tells the
// rest. The number returned is for ChangeBlocks; 0 means that the pool keeps no
// such image, because it has no such replica or its policy does not look at
// tokens.
func (p *Pool) FollowBlocks(replica string) (follower uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.byName[replica]
	if r == nil || p.tokens.Load() == nil {
		return 0
	}
	p.followers++
	p.renewImage(r, p.followers)
	return p.followers
}

// UnfollowBlocks ends what FollowBlocks began: the image goes by predictions
// again, and forgets what it held.
func (p *Pool) UnfollowBlocks(replica string, follower uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.byName[replica]; r != nil {
		if m := p.image(r); m != nil && m.live == follower {
			p.renewImage(r, 0)
		}
	}
}

// ChangeBlocks tells what has changed in the cache of the replica's engine, in
// order. It reports false when the image is not that follower's any more: it
// must begin anew.
func (p *Pool) ChangeBlocks(replica string, follower uint64, changes []BlockChange) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.byName[replica]
	if r == nil {
		return false
	}
	m := p.image(r)
	if m == nil || m.live != follower {
		return false
	}
	now := milliseconds(p.clock())
	for _, c := range changes {
		if c.Stored {
			m.store(c.Key, now)
		} else {
			m.unstore(c.Key)
		}
	}
	return true
}

// renewImage gives r an empty image.
func (p *Pool) renewImage(r *Replica, live uint64) {
	old := p.image(r)
	old.close()
	m := newImage(r, old.index, old.bit, old.capacity)
	m.live = live
	p.mirror.images[r.slot] = m
}
