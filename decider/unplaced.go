package decider

import (
	"time"

	"pointsman/decider/budget"
)

// A request that the proxy places by itself, although the agent was asked, is in
// Pool.unplaced until the proxy reports where it went. There it counts on no replica.

// unplace notes that the proxy places r. The caller holds the lock.
func unplace(p *Pool, r *Request, now time.Duration) *reservation {
	if old := p.unplaced.find(r.ID); old != nil {
		refund(p, &old.request)
		drop(p, old) // the proxy asks again
	}
	w := p.unplaced.add(r.ID)
	w.at, w.lease = now, now+p.lease
	w.seen = len(r.Blocks)
	w.request.keep(r)
	return w
}

// adopt books a request that the proxy sent to replica without a decision.
func adopt(p *Pool, id ID, replica *Replica, now time.Duration) *reservation {
	w := p.unplaced.find(id)
	var v *reservation
	var f *forecast
	if w == nil {
		v = p.account.adopt(id, p, replica, now)
	} else {
		if f = p.shadow.of(p.unplaced.index(w)); f != nil {
			p.shadow.served(f, &w.request, replica, p.stats.MembershipChanges)
		}
		v = p.account.adoptKnown(w, replica, now)
		drop(p, w)
	}
	if f == nil {
		p.stats.Adopted++
	}
	p.admission.sent(v, 1)
	p.report.placed(EventPlaced, v, now)
	if w != nil && p.observer != nil {
		p.observeReserved(p.observer, &v.request, replica.index)
	}
	return v
}

// adoptKnown makes a reservation for w, which the proxy sent to replica, and books it.
func (a *account) adoptKnown(w *reservation, replica *Replica, now time.Duration) *reservation {
	v := a.add(w.id)
	v.at, v.lease = w.at, now+a.lease
	v.seen, v.unguided = w.seen, true
	v.tokens = w.request.Input + max(w.request.Output, 0)
	v.input = w.request.Input
	v.request.keep(&w.request)
	w.request.Charge = budget.Charge{}
	a.book(v, replica, now)
	return v
}

// endUnplaced ends a request that is unplaced, if there is one: it returns the
// reservation to go on with if it was served here.
func endUnplaced(p *Pool, o *Outcome, served *Replica, now time.Duration) *reservation {
	w := p.unplaced.find(o.ID)
	switch {
	case w == nil:
		return nil
	case served == nil:
		forgetUnplaced(p, w, o, now)
		return nil
	}
	return adopt(p, o.ID, served, now)
}

// forgetUnplaced ends w, which reached no replica of the pool as far as is known.
func forgetUnplaced(p *Pool, w *reservation, o *Outcome, now time.Duration) {
	w.unguided = true
	settle(p, w, o)
	recordEnd(p, w, o, now)
	drop(p, w)
}

// drop removes w from the unplaced requests.
func drop(p *Pool, w *reservation) {
	if f := p.shadow.of(p.unplaced.index(w)); f != nil {
		f.shadowed = false
	}
	p.unplaced.remove(w)
}
