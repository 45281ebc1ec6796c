package decider

import "time"

// reserve books r on replica, as decided, and its leg on prefill; nil = it has none. r was
// held for waited. The first seen of its blocks were seen, the others made up. The caller
// holds the lock.
func (p *Pool) reserve(r *Request, seen int, replica, prefill *Replica, waited, now time.Duration) {
	if v := p.find(r.ID); v != nil {
		// The proxy asks again for a request that it could not place: what was
		// reserved for the first answer ends here.
		p.stats.Replaced++
		replace(p, v, now)
	}
	if prefill != nil {
		p.legs.begin(p, r, prefill, now)
	}
	v := p.account.reserve(r, replica, prefill, now)
	v.seen, v.waited = seen, waited
	p.admission.sent(v, 1)
	p.report.placed(EventPlaced, v, now)
}

// replace ends v, whose request is decided again.
func replace(p *Pool, v *reservation, now time.Duration) {
	o := Outcome{End: Refused}
	p.release(v, o, now)
	p.report.ended(v, &o)
}

// move books v on the replica that really serves it.
func (p *Pool) move(v *reservation, replica *Replica, now time.Duration) {
	if replica.role != RoleDecode {
		p.legs.ended(p, v, &Outcome{End: Refused}, now)
	}
	p.account.move(v, replica, now)
	p.stats.Mismatches++
}

// start notes the first byte of v, ttft after the request came, as its engine counts
// it.
func (p *Pool) start(v *reservation, ttft, now time.Duration) {
	begin(p, v, ttft, now)
	if v.from == "" {
		p.report.reached(EventFirstToken, v, false)
	}
}

// begin is start for a first byte that is reported to the other agents together with the
// end; ttft may be 0, for unknown.
func begin(p *Pool, v *reservation, ttft, now time.Duration) {
	p.legs.arrived(v, ttft)
	p.account.start(v, ttft, now)
	if ttft > 0 {
		v.ttft = ttft + v.waited
	}
	p.admission.started(v)
	if o := observerOf(p, v); o != nil && v.replica.index >= 0 {
		p.observeFirstToken(o, v)
	}
}

// release ends v. The caller holds the lock.
func (p *Pool) release(v *reservation, o Outcome, now time.Duration) {
	settle(p, v, &o)
	if v.from != "" {
		p.peers.of(v.from).held--
	}
	p.account.end(v, o, now)
	p.admission.ended(v, now)
	if to := observerOf(p, v); to != nil && v.replica.index >= 0 {
		p.observeFinished(to, v, o)
	}
	p.legs.ended(p, v, &o, now)
}

// expire ends v, whose outcome was not reported.
func (p *Pool) expire(v *reservation, now time.Duration) {
	p.stats.Expired++
	p.caches.resetSize(v.replica)
	o := Outcome{End: Expired}
	if v.from == "" {
		recordEnd(p, v, &o, now)
	}
	p.release(v, o, now)
	if v.from == "" {
		p.report.ended(v, &o)
	}
}

// sweep ends the reservations whose lease has passed.
func (p *Pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for v := p.oldest(); v != nil && v.lease <= now; v = p.oldest() {
		p.expire(v, now)
	}
	for w := p.unplaced.oldest(); w != nil && w.lease <= now; w = p.unplaced.oldest() {
		forgetUnplaced(p, w, &Outcome{End: Expired}, now)
	}
	p.load.forget(p.replicas, now)
	p.turnover.fade(p.replicas)
	p.admission.dispatch(now)
}

// reclaimOrphans ends the reservations on r, which is down, of requests that the reporting
// proxy process has asked about: r has no request of that process any more. HAProxy 2.6
// reports no end of a request whose replica closes before it answers, if the client has
// sent others before over the same connection. Reservations of the last feedWait are left
// to the feed.
func reclaimOrphans(p *Pool, r *Replica, now time.Duration) {
	if r.ofProxy == 0 {
		return
	}
	s := &p.account.reservations
	for i := s.slots[0].next; i != 0; {
		v := s.at(i)
		i = v.next
		if v.replica == r && r.asked(v) && now-v.at > feedWait && !p.peers.answers(v.from) {
			p.expire(v, now)
		}
	}
}

// feedWait is how late the feed may be.
const feedWait = 2 * time.Second
