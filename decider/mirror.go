package decider

import "time"

// configureMirror keeps images of the replicas' caches while the policy looks
// at prompts. The caller holds the lock.
func (p *Pool) configureMirror() {
	switch wanted := p.usesPrefix.Load(); {
	case wanted && p.mirror == nil:
		p.mirror = &prefixes{}
	case !wanted:
		p.mirror, p.view.depth, p.view.best = nil, nil, 0
	}
}

// renewMirror forgets all images: another policy has other keys.
func (p *Pool) renewMirror() {
	if p.mirror == nil {
		return
	}
	for _, m := range p.mirror.images {
		if m != nil {
			m.close()
		}
	}
	p.mirror = nil
}

// mirrorMembers makes the images those of the present members.
func (p *Pool) mirrorMembers() {
	if p.mirror != nil {
		p.mirror.members(p.replicas, p.cacheBlocks)
	}
}

// cacheBlocks is the size of r's cache in blocks.
func (p *Pool) cacheBlocks(r *Replica) int { return r.CacheTokens() / p.view.BlockTokens }

// resizeMirror gives each image the size that is now known of its cache.
func (p *Pool) resizeMirror() {
	for _, r := range p.replicas {
		p.resizeImage(r)
	}
}

// resizeImage gives r's image the size that is now known of its cache.
func (p *Pool) resizeImage(r *Replica) {
	if m := p.image(r); m != nil {
		m.capacity = p.cacheBlocks(r)
		m.evict()
	}
}

// witness notes how much m's replica has in its cache at one time: at least
// what had its first token and has not ended.
func (p *Pool) witness(m *image) {
	r := m.of
	if seen := (m.running + m.loose) * p.view.BlockTokens; seen > r.cacheSeen {
		r.cacheSeen = seen
		m.capacity = p.cacheBlocks(r)
	}
}

// doubt forgets how much was seen in r's cache: the engine is another one, or
// what seemed to run there had ended.
func (p *Pool) doubt(r *Replica) {
	if r.cacheSeen != 0 {
		r.cacheSeen = 0
		p.resizeImage(r)
	}
}

// image is the image of r's cache, or nil.
func (p *Pool) image(r *Replica) *image {
	if p.mirror == nil {
		return nil
	}
	return p.mirror.of(r)
}

// look finds out what each replica has of the request's prompt.
func (p *Pool) look(r *Request) {
	v := &p.view
	v.input, v.blocks, v.heatDepth = r.Input, r.Blocks, -1
	if p.mirror != nil {
		v.depth, v.best = p.mirror.match(r.Blocks, v.depth)
	}
}

// await tells the image of v's replica that the request is on its way to it.
func (p *Pool) await(v *reservation, now time.Duration) {
	v.image, v.pinned = p.image(v.replica), false
	if v.image == nil {
		return
	}
	v.image.await(v.request.Blocks, milliseconds(now))
	if v.started {
		p.pin(v)
	}
}

// pin tells the image that the prompt of v is computed. Its last block and the
// output have no key.
func (p *Pool) pin(v *reservation) {
	if v.image == nil || v.image.closed() || v.pinned {
		return
	}
	p.witness(v.image) // without v: engines refuse what is too long in no time
	v.pinned = true
	v.loose = max(0, v.input/p.view.BlockTokens-len(v.request.Blocks)) + 1
	if v.loose > v.image.capacity {
		v.loose = 0 // the engine refused it, or the estimate is of no use
	}
	v.image.pin(v.request.Blocks, v.loose)
}

// leave tells the image that the request is no more on the replica. What was
// computed of it stays in the cache.
func (v *reservation) leave() {
	switch m := v.image; {
	case m == nil || m.closed():
	case v.pinned:
		m.unpin(v.request.Blocks, v.loose)
	default:
		m.forsake(v.request.Blocks)
	}
	v.image = nil
}
