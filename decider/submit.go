package decider

import (
	"time"

	"pointsman/decider/queue"
)

// Waiter is notified when a held request has been decided: the pool has filled the Decision
// given to Submit, and no longer touches it or the Request. Decided is called with the pool
// locked: it must not block, nor call the pool.
type Waiter interface{ Decided() }

// refusals are the messages for clients, by the reason.
var refusals = [queue.Reasons]string{
	"Too many requests are waiting already.",
	"No replica had capacity for the request in time.",
	"The request cannot be answered by its deadline.",
	noReplica,
}

// Submit is Decide for a pool whose requests may wait. When it reports true,
// the request is held: r and d belong to the pool until w.Decided is called.
// Otherwise d is filled and w will not be called. A pool without an admission
// decides at once.
func (p *Pool) Submit(r *Request, d *Decision, w Waiter) (isHeld bool) {
	if p.admission.current.Load() == nil {
		p.Decide(r, d)
		return false
	}
	isHeld, spill := p.admission.submit(r, d, w, true)
	if spill == nil {
		return isHeld
	}
	r.moveTo(spill)
	if spill.admission.current.Load() == nil {
		spill.Decide(r, d)
		return false
	}
	isHeld, _ = spill.admission.submit(r, d, w, false)
	return isHeld
}

// moveTo moves r, which exceeds the limits of its pool, to p.
func (r *Request) moveTo(p *Pool) {
	name := ""
	if s := r.Pool.admission.current.Load(); s != nil && r.Band < s.Len() {
		name = s.Band(r.Band).Name
	}
	r.Pool = p
	if s := p.admission.current.Load(); s != nil {
		r.Band = s.Index(name)
	}
	r.Blocks = r.Blocks[:0]
	if p.ComparesText() && r.Prompt != nil {
		r.Blocks = r.Prompt.AppendBlocks(r.Blocks, p)
	}
}

// submit decides r, holds or refuses it, or names the pool that is to take it.
func (a *admission) submit(r *Request, d *Decision, w Waiter, maySpill bool) (isHeld bool, spill *Pool) {
	p := a.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	*d, r.asked, r.counted = Decision{Pool: p.name}, 0, false
	p.stats.Decisions++
	if tooLate(p, r, d) {
		return false, nil
	}
	if p.Shadows(r) {
		shadowed(p, r, d, now)
		return false, nil
	}
	if !a.on() || a.draining || len(p.open) == 0 && !a.holdsWithoutReplica(now) || len(p.open) > 0 && !p.anyServes(r) {
		p.decide(r, d, now)
		return false, nil
	}
	r.Band = a.Clamp(r.Band)
	band := a.Band(r.Band)
	d.Band = band.Name
	prefill, soonest := prospectsWhole(p, r, now)
	a.counts.Arrived(r.Band, prefill, now)
	if !a.Hold {
		soonest += a.proxyWait(r.Band)
	}
	if r.Deadline > 0 && now+soonest > r.Deadline {
		a.refuse(r, d, queue.Late, now)
		return false, nil
	}
	e := queue.Entry{
		ID: r.ID, Band: r.Band, Tenant: r.Tenant, Deadline: r.Deadline, Bytes: r.Bytes,
		Prefill: prefill, Work: prefill + float64(max(r.Output, 0)),
	}
	if !a.Hold {
		if a.proxy.Waiting(r.Band, p.places()) >= band.MaxRequests {
			return a.full(r, d, maySpill, now)
		}
		a.decideInProxy(r, d, e, now)
		return false, nil
	}
	if old := a.queue.Find(r.ID); old != nil {
		r.countedAs(old.Value.request)
		if old.Value.elsewhere != nil {
			a.elsewhere.forget(old) // its proxy asks this agent now
		} else {
			p.stats.Replaced++
			a.abandon(old, "replaced") // the proxy asks again
		}
	}
	if a.queue.Len() == 0 {
		a.departed = now
	}
	it := a.queue.Add(e, held{request: r, decision: d, lost: a.stall.lost}, now, p.load.poolSpeed())
	a.dispatch(now)
	if a.queue.Find(r.ID) != it {
		return false, nil
	}
	if a.queue.Full(r.Band) {
		a.queue.Remove(it)
		a.queue.Recycle(it)
		return a.full(r, d, maySpill, now)
	}
	it.Value.waiter = w
	countHeld(p, r, prefill, now)
	p.report.held(it, now)
	a.count(r).Held++
	return true, nil
}

// countHeld counts r, which is held, as traffic of the pool, unless it was counted before. No
// replica has cached prefill tokens of its prompt.
func countHeld(p *Pool, r *Request, prefill float64, now time.Duration) {
	if r.counted {
		return
	}
	p.caches.ask(r, now)
	p.load.count(prefillCost(max(0, int(prefill)), max(0, r.Input)), now)
	r.counted = true
}

// countedAs notes in r what was counted of old, the same request.
func (r *Request) countedAs(old *Request) { r.asked, r.counted = old.asked, old.counted }

// decideInProxy decides r and its place in the proxy's queues.
func (a *admission) decideInProxy(r *Request, d *Decision, e queue.Entry, now time.Duration) {
	p := a.pool
	slot := a.proxy.Next(e, now, p.load.poolSpeed(), p.load.totalSpeed(&p.members))
	d.Class, d.Offset, d.Ordered = slot.Class, slot.Offset, true
	a.count(r).Admitted++
	p.decide(r, d, now)
	if v := p.find(r.ID); v != nil {
		v.start = slot.Start
	}
}

// full refuses r, whose band is full, or names the pool that takes it.
func (a *admission) full(r *Request, d *Decision, maySpill bool, now time.Duration) (bool, *Pool) {
	p := a.pool
	if maySpill && !r.Fixed {
		if other := a.spillTo[r.Band]; other != nil && other != p {
			a.count(r).Spilled++
			p.stats.Decisions-- // the other pool counts it
			return false, other
		}
	}
	a.refuse(r, d, queue.Full, now)
	return false, nil
}

// refuse answers r with a 429 that says when to come back.
func (a *admission) refuse(r *Request, d *Decision, why queue.Reason, now time.Duration) {
	p := a.pool
	a.count(r).Refused[why]++
	d.Status, d.Reason, d.Why = 429, refusals[why], why.String()
	d.Retry = a.retryAfter(r.Band)
	p.view.Candidates = nil
	p.records.add(p, r, d, now)
	refund(p, r)
	recordRefusal(p, r, d.Status, d.Wait, now)
}
