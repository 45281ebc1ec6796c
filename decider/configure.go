package decider

import "time"

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
		u, ok := c.Policy.(PrefixUser)
		p.usesPrefix.Store(ok && u.UsesPrefix())
		before := p.tokens.Load()
		p.tokens.Store(nil)
		if t, ok := c.Policy.(TokenUser); ok {
			p.tokens.Store(t.Tokens())
		}
		if before != nil || p.tokens.Load() != nil {
			p.caches.close(p.replicas)
		}
	}
	p.setBlockTokens()
	p.filters.configure(c.Filters, c.PolicyName)
	p.sessions.enable(p.filters.usesSessions())
	p.caches.enable(p.usesPrefix.Load(), p.replicas)
	if !p.usesPrefix.Load() {
		p.view.depth, p.view.best = nil, 0
	}
	now := p.clock()
	if first {
		now -= c.SlowStart // a pool that starts is not slow as a whole
	}
	p.slowStart = c.SlowStart
	p.setReplicas(p.listedReplicas(c, now))
	p.admission.configure(c.Admission, now)
}

// listedReplicas are the replicas of c, and those that were discovered before if
// it has more to come from the proxy. Replicas that keep their name keep their
// state.
func (p *Pool) listedReplicas(c PoolConfig, now time.Duration) []*Replica {
	keep := p.replicas[:0:0]
	seen := map[string]bool{}
	for _, rc := range c.Replicas {
		r := p.byName[rc.Name]
		if r == nil {
			r = &Replica{name: rc.Name, since: now, weight: max(rc.Weight, 1)}
		}
		if !r.listed {
			r.listed, r.down, r.draining = true, false, false
		}
		r.address, r.zone, r.node = rc.Address, rc.Zone, rc.Node
		r.limit = rc.Limit
		if r.limit == 0 {
			r.limit = c.Limit
		}
		if rc.Weight > 0 {
			r.weight = rc.Weight
		}
		r.cacheTokens = rc.CacheTokens
		if r.signals.CacheTokens > 0 {
			r.cacheTokens = r.signals.CacheTokens
		}
		keep, seen[rc.Name] = append(keep, r), true
	}
	if c.Discover {
		for _, r := range p.replicas {
			if !seen[r.name] && !r.listed {
				r.limit, r.cacheTokens = c.Limit, r.signals.CacheTokens
				keep = append(keep, r)
			}
		}
	}
	return keep
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
	p.stats.MembershipChanges++
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
		p.release(v, Outcome{End: Expired}, now)
	}
	p.config.Discover = false
	p.setReplicas(nil)
}
