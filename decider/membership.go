package decider

import "time"

// ReplicaState is what a proxy reports of one of its servers.
type ReplicaState struct {
	Name     string
	Address  string
	Up       bool
	Draining bool
	Checked  bool // Up is what a health check found
	Idle     bool // the proxy has no request there
	Weight   int
	Requests int  // that the proxy has there, running or in its queue
	Queued   int  // of these, in its queue
	Counted  bool // Requests is known
	// Origin is the proxy process that reports this, as in Request; 0 = unknown. Its counts
	// end only reservations of its own requests: another proxy, or this one before a
	// reload, may still serve the others.
	Origin uint64
}

// Discovered reports what the proxy's servers are. Replicas that the configuration
// lists take health, draining and weight from it; a pool that discovers its
// replicas takes it as its membership. Discovered returns whether the membership
// or a weight changed.
func (p *Pool) Discovered(states []ReplicaState) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.statesAt = now
	list := p.replicas
	if p.config.Discover {
		list, changed = p.discovered(states, p.config.Limit, now)
	}
	touched := changed
	for _, s := range states {
		r := p.byName[s.Name]
		if r == nil && p.config.Discover {
			r = findReplica(list, s.Name)
		}
		if r == nil {
			continue
		}
		if r.down != !s.Up || r.draining != s.Draining || r.weight != s.Weight {
			touched = true
			changed = changed || r.weight != s.Weight
		}
		if s.Up && (r.down || r.draining && !s.Draining) {
			r.since = now
			p.readmit(r)
		}
		r.seen = s.Up && (s.Checked || r.seen)
		if s.Up && r.down { // most likely it has restarted
			p.restarted(r)
		}
		r.down, r.draining, r.weight = !s.Up, s.Draining, s.Weight
		p.account.setProxy(r, s.Origin)
		r.atProxy, r.atQueue, r.proxyCounts = max(s.Requests, 0), max(s.Queued, 0), s.Counted
		reconcile(p, r, false, now)
		if r.down && s.Idle {
			reclaimOrphans(p, r, now)
		}
		if !r.listed {
			moveTo(p, r, s.Address)
		}
	}
	switch {
	case changed:
		p.setReplicas(list)
	case touched:
		p.refresh()
	}
	p.admission.dispatch(now)
	return changed
}

// discovered returns the replicas that states describe, in their order, and whether the
// list has changed. limit is that of new replicas.
func (m *members) discovered(states []ReplicaState, limit int, now time.Duration) (list []*Replica, changed bool) {
	if len(m.replicas) == 0 {
		now -= m.slowStart // the first ones found are the pool's start
	}
	changed = len(states) != len(m.replicas)
	for i, s := range states {
		r := m.byName[s.Name]
		if r == nil {
			r = &Replica{name: s.Name, index: -1, since: now, limit: limit, weight: s.Weight}
		}
		changed = changed || r.index != i
		list = append(list, r)
	}
	return list, changed
}

func findReplica(list []*Replica, name string) *Replica {
	for _, r := range list {
		if r.name == name {
			return r
		}
	}
	return nil
}
