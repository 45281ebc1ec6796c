package decider

import "time"

// A replica that fails is left alone for coolFirst, then for twice as long
// with each further failure in a row up to coolMost, as long as others are
// left to choose. One success forgives all. A stream that breaks speaks less
// clearly, because HAProxy says the same of some that their clients have left:
// the first pause after it is coolBroken, long enough for the other streams of
// a replica that died to break as well.
const (
	coolBroken = 250 * time.Millisecond
	coolFirst  = time.Second
	coolMost   = 30 * time.Second
)

// fail notes a failure of r at now, after which it is first left alone for
// first. The caller holds the lock.
func (p *Pool) fail(r *Replica, first, now time.Duration) {
	r.failed++
	r.failures++
	cool := min(first<<min(r.failures-1, 16), coolMost)
	r.coolUntil = max(r.coolUntil, now+cool)
	p.coolUntil = max(p.coolUntil, r.coolUntil)
}

// succeed notes that r served a request. The caller holds the lock.
func (r *Replica) succeed() {
	r.served++
	r.failures = 0
	r.coolUntil = 0
}

// forget empties what is believed of the memory of r's engine.
func (p *Pool) engineRestarted(r *Replica) {
	p.resetCacheSize(r)
	if r.cache != nil {
		r.cache.Clear()
	}
	r.adapters.restart()
}

// ReplicaState is what a proxy says of one of its servers.
type ReplicaState struct {
	Name     string
	Address  string
	Up       bool
	Draining bool
	Idle     bool // the proxy has no request there
	Weight   int
}

// Discovered tells the pool what the proxy's servers are. Listed replicas
// take over health, draining and weight; a pool that discovers its replicas
// takes the list as its membership. It reports whether the membership or a
// weight changed.
func (p *Pool) Discovered(states []ReplicaState) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.statesAt = now
	list := p.replicas
	if p.config.Discover {
		list, changed = p.membership(states, now)
	}
	touched := changed
	for _, s := range states {
		r := p.byName[s.Name]
		if r == nil && p.config.Discover {
			r = find(list, s.Name)
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
			r.failures, r.coolUntil = 0, 0
		}
		if s.Up && r.down { // most likely it was started anew
			p.engineRestarted(r)
		}
		r.down, r.draining, r.weight = !s.Up, s.Draining, s.Weight
		if r.down && s.Idle {
			p.lose(r, now)
		}
		if !r.listed {
			r.address = s.Address
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

// lose ends what is reserved on r, which is down and has no request any more.
// HAProxy 2.6 tells no end of a request whose replica closes before it answers,
// if the client has sent others before over the same connection. Reservations
// of the last feedWait are left to the feed.
func (p *Pool) lose(r *Replica, now time.Duration) {
	if r.inFlight == 0 {
		return
	}
	for i := p.reservations.slots[0].next; i != 0; {
		v := &p.reservations.slots[i]
		i = v.next
		if v.replica == r && now-v.at > feedWait {
			p.expire(v, now)
		}
	}
}

// feedWait is how late the feed may be.
const feedWait = 2 * time.Second

// Checked tells what the agent's own check of a replica found. It stands
// beside what the proxy says: a replica that either finds down is not chosen.
// It reports whether that is news.
func (p *Pool) Checked(replica string, well bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.byName[replica]
	if r == nil || r.unwell == !well {
		return false
	}
	now := p.clock()
	r.unwell = !well
	if well {
		r.since = now
		r.failures, r.coolUntil = 0, 0
		p.engineRestarted(r)
	}
	p.refresh()
	p.admission.dispatch(now)
	return true
}

// membership is the list of replicas that states describe, in their order.
func (p *Pool) membership(states []ReplicaState, now time.Duration) (list []*Replica, changed bool) {
	if len(p.replicas) == 0 {
		now -= p.config.SlowStart // the first ones found are the pool's start
	}
	changed = len(states) != len(p.replicas)
	for i, s := range states {
		r := p.byName[s.Name]
		if r == nil {
			r = &Replica{name: s.Name, index: -1, since: now, limit: p.config.Limit, weight: s.Weight}
		}
		changed = changed || r.index != i
		list = append(list, r)
	}
	return list, changed
}

func find(list []*Replica, name string) *Replica {
	for _, r := range list {
		if r.name == name {
			return r
		}
	}
	return nil
}
