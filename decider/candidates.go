package decider

import "time"

// refresh recomputes what candidates builds on, after a replica's state
// changed. The caller holds the lock.
func (p *Pool) refresh() {
	p.open = p.open[:0]
	p.plain = true
	p.slowUntil = 0
	for i, r := range p.replicas {
		if !r.open() {
			continue
		}
		p.open = append(p.open, i)
		if r.limit > 0 && !p.admission.queuesInProxy() {
			p.plain = false
		}
		p.slowUntil = max(p.slowUntil, r.since+p.config.SlowStart)
	}
}

// candidates returns the indexes of the replicas that may be chosen for r. A
// replica that is down, draining, full or already tried never is. One that
// failed a moment ago, or has just come up, steps back as long as others are
// left: those filters thin the choice, but never empty it.
func (p *Pool) candidates(r *Request, now time.Duration) []int {
	if p.plain && r.Exclude == "" && (r.LoRA == "" || !p.anyLists) && now >= p.ejectedUntil && now >= p.slowUntil {
		return p.open
	}
	p.some = p.some[:0]
	for _, i := range p.open {
		if p.mayTake(p.replicas[i], r) {
			p.some = append(p.some, i)
		}
	}
	usable := p.some
	for _, i := range usable {
		if c := p.replicas[i]; now >= c.ejectedUntil && p.warm(c, now) {
			p.some = append(p.some, i)
		}
	}
	if preferred := p.some[len(usable):]; len(preferred) > 0 {
		return preferred
	}
	return usable
}

// mayTake reports whether an open replica has room for r.
func (p *Pool) mayTake(c *Replica, r *Request) bool {
	return (c.limit == 0 || c.inFlight < c.limit || p.admission.queuesInProxy()) && (r.Exclude == "" || c.name != r.Exclude) &&
		p.serves(c, r.LoRA)
}

// slowStartFloor is the share of its traffic a replica gets as it comes up.
const slowStartFloor = 0.1

// warm draws whether a replica in its slow start takes part in this decision:
// its chance grows from slowStartFloor to 1.
func (p *Pool) warm(c *Replica, now time.Duration) bool {
	up := now - c.since
	if up >= p.config.SlowStart {
		return true
	}
	share := float64(up) / float64(p.config.SlowStart)
	return p.view.Rand.Float64() < max(share, slowStartFloor)
}
