package decider

import "time"

// A replica that fails is ejected for ejectFirst, then for twice as long with
// each further failure in a row up to ejectMost, as long as others are left to
// choose. One success resets that. A stream that breaks says less, because
// HAProxy reports the same of some that their clients have left: the first
// ejection after it lasts ejectBroken, long enough for the other streams of a
// replica that died to break as well.
const (
	ejectBroken = 250 * time.Millisecond
	ejectFirst  = time.Second
	ejectMost   = 30 * time.Second
)

// eject counts a failure of r at now and ejects it, for first if it is the first
// one in a row.
func (m *members) eject(r *Replica, first, now time.Duration) {
	r.failed++
	r.failures++
	pause := min(first<<min(r.failures-1, 16), ejectMost)
	r.ejectedUntil = max(r.ejectedUntil, now+pause)
	m.ejectedUntil = max(m.ejectedUntil, r.ejectedUntil)
}

// succeeded counts a request that r served, and ends its ejection.
func (r *Replica) succeeded() {
	r.served++
	r.readmit()
}

// readmit ends the ejection of r.
func (r *Replica) readmit() { r.failures, r.ejectedUntil = 0, 0 }

// judge counts the end of a request for or against the replicas that had it:
// served is the one that the proxy names last, v its reservation; each may be
// nil.
func (p *Pool) judge(v *reservation, served *Replica, o Outcome, now time.Duration) {
	if o.Redispatched && v != nil && v.decided != nil && v.decided != served {
		p.eject(v.decided, ejectFirst, now) // it refused the connection: another one took it
	}
	if served == nil {
		return
	}
	switch {
	case o.End == Died && (o.TTFT > 0 || v != nil && v.started):
		p.eject(served, ejectBroken, now)
	case o.End.fault():
		p.eject(served, ejectFirst, now)
	case o.End == Served:
		served.succeeded()
	}
}

// Checked reports what the agent's own check of a replica found. A replica that
// either the agent or the proxy finds down is not chosen. Checked returns
// whether the state changed.
func (p *Pool) Checked(replica string, healthy bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.byName[replica]
	if r == nil || r.unhealthy == !healthy {
		return false
	}
	now := p.clock()
	r.unhealthy = !healthy
	if healthy {
		r.since = now
		r.readmit()
		p.restarted(r)
	}
	p.refresh()
	p.admission.dispatch(now)
	return true
}
