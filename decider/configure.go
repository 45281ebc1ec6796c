package decider

import "math"

// configure applies c. Replicas that keep their name keep their state.
func (p *Pool) configure(c PoolConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.policy == nil
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.BlockTokens == 0 {
		c.BlockTokens = DefaultBlockTokens
		if t, ok := c.Policy.(TokenUser); ok {
			c.BlockTokens = t.Tokens().BlockTokens
		}
	}
	if c.CacheTokens == 0 {
		c.CacheTokens = DefaultCacheTokens
	}
	if c.LoRASlots == 0 {
		c.LoRASlots = DefaultLoRASlots
	}
	same := !first && c.PolicyKey == p.config.PolicyKey
	p.config = c
	if !same {
		p.setPolicy(c.Policy)
		p.legs.configure(c.PrefillPolicy)
		before := p.tokens.Load()
		p.tokens.Store(nil)
		if t, ok := c.Policy.(TokenUser); ok {
			p.tokens.Store(t.Tokens())
			chooseBlockTokens(p)
		}
		if before != nil || p.tokens.Load() != nil {
			p.caches.close(p.replicas)
		}
	}
	keepBlockTokens(p)
	p.shadowShare.bits.Store(math.Float64bits(c.Shadow))
	u, ok := c.Policy.(PrefixUser)
	p.usesPrefix.Store(ok && u.UsesPrefix() || c.Shadow > 0) // which compares hit rates
	p.setBlockTokens()
	p.filters.configure(c.Filters, c.PolicyName)
	p.sessions.enable(p.filters.usesSessions())
	p.caches.cpuTokens = c.CPUCacheTokens
	p.caches.enable(p.usesPrefix.Load(), p.replicas)
	if !p.usesPrefix.Load() {
		p.view.depth, p.view.best = nil, 0
	}
	now := p.clock()
	if first {
		now -= c.SlowStart // a pool that starts is not slow as a whole
	}
	p.slowStart, p.lease = c.SlowStart, c.Lease
	for _, rc := range c.Replicas {
		if r := p.byName[rc.Name]; r != nil {
			moveTo(p, r, rc.Address)
		}
	}
	p.setReplicas(p.configured(c, now))
	p.admission.configure(c.Admission, now)
}

// setReplicas makes list the membership. The caller holds the lock.
func (p *Pool) setReplicas(list []*Replica) {
	for _, r := range list {
		if r.cacheTokens == 0 {
			r.cacheTokens = p.config.CacheTokens
		}
		r.near = p.config.nearness(r)
		if r.adapters.slots = r.slotsReported; r.slotsReported == 0 {
			r.adapters.slots = p.config.LoRASlots
		}
	}
	before := p.replicas
	p.set(list)
	p.caches.setReplicas(before, list)
	p.updateBounds(&p.config, list)
	p.stats.MembershipChanges++
	chooseBlockTokens(p)
	p.membersChanged()
}

// close empties a pool that the configuration no longer has. Its reservations
// end with it.
func (p *Pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.admission.drain(now)
	for v := p.oldest(); v != nil; v = p.oldest() {
		o := Outcome{End: Expired}
		p.release(v, o, now)
		if v.from == "" {
			p.report.ended(v, &o)
		}
	}
	p.config.Discover = false
	p.setReplicas(nil)
}
