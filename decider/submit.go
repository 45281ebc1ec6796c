package decider

import (
	"math"
	"time"

	"pointsman/prompt"
)

// Why a request was refused, in the order of their names.
type shed uint8

const (
	shedFull     shed = iota // the band's limits
	shedWaited               // the band's time to live
	shedDeadline             // the deadline cannot be met
	shedAbsent               // no replica has come
	sheds
)

var shedNames = [sheds]string{"queue_full", "waited_too_long", "deadline", "no_replica"}

var shedReasons = [sheds]string{
	"Too many requests are waiting already.",
	"No replica had room for the request in time.",
	"The request cannot be answered by its deadline.",
	noReplica,
}

// Submit is Decide for a pool whose requests may wait. When it reports true,
// the request is held: r and d belong to the pool until w.Bound is called.
// Otherwise d is filled and w will not be called. A pool without an admission
// decides at once.
func (p *Pool) Submit(r *Request, d *Decision, w Waiter) (isHeld bool) {
	if p.admission.Load() == nil {
		p.Decide(r, d)
		return false
	}
	isHeld, spill := p.admit(r, d, w, true)
	if spill == nil {
		return isHeld
	}
	r.moveTo(spill)
	if spill.admission.Load() == nil {
		spill.Decide(r, d)
		return false
	}
	isHeld, _ = spill.admit(r, d, w, false)
	return isHeld
}

// moveTo makes p the pool of r, which another pool had no place for.
func (r *Request) moveTo(p *Pool) {
	name := ""
	if a := r.Pool.admission.Load(); a != nil && r.Band < len(a.Bands) {
		name = a.Bands[r.Band].Name
	}
	r.Pool = p
	if a := p.admission.Load(); a != nil {
		r.Band = a.bandNamed(name)
	}
	r.Blocks = r.Blocks[:0]
	if p.usesPrefix.Load() && p.tokens.Load() == nil && r.body != nil {
		r.Blocks = r.body.Blocks(r.Blocks, prompt.Seed(p.seed, []byte(r.LoRA), r.body.CacheSalt), BlockBytes)
	}
}

// admit decides r, holds or refuses it, or names the pool that is to take it.
func (p *Pool) admit(r *Request, d *Decision, w Waiter, maySpill bool) (isHeld bool, spill *Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	*d = Decision{Pool: p.name}
	p.stats.Decisions++
	if p.gone.take(r.ID) {
		d.Why = "client_gone"
		p.stats.ClientGone++
		return false, nil
	}
	q := p.queue
	if q == nil || p.letGo || len(p.open) == 0 && !p.awaits(now) || len(p.open) > 0 && !p.anyServes(r) {
		p.decide(r, d, now)
		return false, nil
	}
	r.Band = min(r.Band, len(q.Bands)-1)
	d.Band = q.Bands[r.Band].Name
	b := &q.bands[r.Band]
	prefill, soonest := p.prospects(r, now)
	b.load.add(prefill, now)
	if !q.Hold {
		soonest += p.proxyWait(r.Band)
	}
	if r.Deadline > 0 && now+soonest > r.Deadline {
		p.refuse(r, d, shedDeadline, now)
		return false, nil
	}
	if !q.Hold {
		if n := p.waitingInProxy(r.Band); n >= q.Bands[r.Band].MaxRequests {
			return p.full(r, d, maySpill, now)
		}
		p.queueInProxy(r, d, prefill, now)
		return false, nil
	}
	if old := q.byID[r.ID]; old != nil {
		p.stats.Replaced++
		p.abandon(old, "replaced") // the proxy asks again
	}
	h := q.newHeld()
	h.request, h.decision, h.band, h.at = r, d, r.Band, now
	h.prefill, h.work = prefill, prefill+float64(max(r.Output, 0))
	q.add(h, now, p.poolSpeed())
	p.freed(now)
	if q.byID[r.ID] != h {
		return false, nil
	}
	if limit := &q.Bands[r.Band]; b.n > limit.MaxRequests || limit.MaxBytes > 0 && b.bytes > limit.MaxBytes {
		q.remove(h)
		q.recycle(h)
		return p.full(r, d, maySpill, now)
	}
	h.waiter = w
	b.counts[h.tenant.class].Held++
	return true, nil
}

// full refuses r, whose band is full, or names the pool that takes it.
func (p *Pool) full(r *Request, d *Decision, maySpill bool, now time.Duration) (bool, *Pool) {
	q := p.queue
	if maySpill && !r.fixed {
		if other := p.spillTo[r.Band]; other != nil && other != p {
			q.bands[r.Band].counts[q.class(r.Tenant)].Spilled++
			p.stats.Decisions-- // the other pool counts it
			return false, other
		}
	}
	p.refuse(r, d, shedFull, now)
	return false, nil
}

// refuse answers r with a 429 that says when to come back.
func (p *Pool) refuse(r *Request, d *Decision, why shed, now time.Duration) {
	q := p.queue
	q.bands[r.Band].counts[q.class(r.Tenant)].Shed[why]++
	d.Status, d.Reason, d.Why = 429, shedReasons[why], shedNames[why]
	d.Retry = p.retryAfter(r.Band)
	p.view.Candidates = nil
	p.records.add(p, r, d, now)
}

// retryAfter is in how many seconds a request of that band would find a
// replica, by what waits before it and how fast that leaves.
func (p *Pool) retryAfter(band int) int {
	wait := p.queueWait(band)
	if !p.queue.Hold {
		wait = p.proxyWait(band)
	}
	if len(p.open) == 0 {
		wait = max(wait, p.config.RetryAfter)
	}
	return int(min(max(math.Ceil(wait.Seconds()), 1), 600))
}

// queueWait is how long a request of that band which comes now would be held.
func (p *Pool) queueWait(band int) time.Duration {
	q := p.queue
	return seconds(q.ahead(band) / q.drain.rate(p.totalSpeed()))
}

// prospects is how much of r's prompt no replica has cached, and how soon its
// first token could come.
func (p *Pool) prospects(r *Request, now time.Duration) (prefill float64, soonest time.Duration) {
	v := &p.view
	v.Now = now
	p.matchPrefix(r)
	prefill = float64(r.Input - v.BestCached())
	best := math.Inf(1)
	for _, i := range p.open {
		best = min(best, (v.PrefillBacklog(i)+v.PrefillCost(i))/v.PrefillSpeed(i))
	}
	if len(p.open) == 0 {
		best = 0 // when one comes is not known: the queue minds the deadline
	}
	return prefill, seconds(best)
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 1e6) * float64(time.Second))
}

// poolSpeed is the prefill speed of a replica, all together.
func (p *Pool) poolSpeed() float64 { return p.load.poolSpeed() }

// totalSpeed is the prefill speed of the replicas that are open, or of the one
// that may come.
func (p *Pool) totalSpeed() (sum float64) {
	if len(p.open) == 0 {
		return p.poolSpeed()
	}
	for _, i := range p.open {
		sum += p.load.speedOf(p.replicas[i])
	}
	return max(sum, 1)
}

// freed binds what waits to the replicas that have room, and refuses what has
// waited too long. The caller holds the lock.
func (p *Pool) freed(now time.Duration) {
	q := p.queue
	if q == nil || len(q.byID) == 0 {
		return
	}
	for q.due.len() > 0 && q.due.first().key <= now.Seconds() {
		h := q.due.first().value
		why := shedWaited
		if h.late {
			why = shedDeadline
		}
		q.remove(h)
		h.decision.Wait = now - h.at
		if p.awaits(now) {
			p.awaitedInVain(h, now)
		} else {
			p.refuse(h.request, h.decision, why, now)
		}
		p.tell(h)
	}
	for len(q.byID) > 0 {
		h := p.tryNext(now)
		q.masked = false
		if h == nil {
			return
		}
		p.bind(h, now)
	}
}

// awaits reports whether requests are held although no replica is open. They are
// not when that is only what the proxy said a while ago, or when it has yet to be
// found which replicas there are: the proxy may know better.
func (p *Pool) awaits(now time.Duration) bool {
	if q := p.queue; q == nil || !q.Hold || !q.Await || len(p.open) > 0 || p.config.Unfound {
		return false
	}
	if now-p.statesAt <= blindAfter {
		return true
	}
	for _, r := range p.replicas {
		if !r.unwell {
			return false
		}
	}
	return len(p.replicas) > 0 || !p.config.Discover
}

// anyServes reports whether some open replica may serve r, now or when it has
// room.
func (p *Pool) anyServes(r *Request) bool {
	for _, i := range p.open {
		if c := p.replicas[i]; (r.Exclude == "" || c.name != r.Exclude) && p.serves(c, r.LoRA) {
			return true
		}
	}
	return false
}

// awaitedInVain gives h, which was removed, what it would have had at once
// without being held: a 503, or the proxy's own answer.
func (p *Pool) awaitedInVain(h *held, now time.Duration) {
	p.decide(h.request, h.decision, now)
	if h.decision.Status != 0 {
		p.queue.bands[h.band].counts[h.tenant.class].Shed[shedAbsent]++
	}
}

// tryNext is next; a policy that panics costs the first in line its decision,
// not the goroutine that happened to bring the news.
func (p *Pool) tryNext(now time.Duration) (h *held) {
	defer func() {
		if recover() != nil {
			p.stats.PolicyPanics++
			p.order = p.order[:0]
			h = p.queue.head()
		}
	}()
	return p.next(now)
}

// bind sends h to the first of p.order.
func (p *Pool) bind(h *held, now time.Duration) {
	q, r, d := p.queue, h.request, h.decision
	q.charge(h)
	q.remove(h)
	if len(q.byID) > 0 {
		q.drain.add(h.work, (now - q.drained).Seconds(), p.totalSpeed())
		q.drained = now
	}
	d.Wait = now - h.at
	c := &q.bands[h.band].counts[h.tenant.class]
	c.Bound++
	c.wait(d.Wait)
	p.grant(r, d, now)
	if v := p.reservations.find(r.ID); v != nil {
		v.waited = d.Wait
	}
	p.tell(h)
}

// tell lets the waiter of h go on. h was removed.
func (p *Pool) tell(h *held) {
	w := h.waiter
	p.queue.recycle(h)
	if w != nil {
		w.Bound()
	}
}

// abandon drops h, which nobody waits for any more.
func (p *Pool) abandon(h *held, why string) {
	p.queue.remove(h)
	h.decision.Why = why
	p.tell(h)
}

// isHeld reports whether a request of that id is held.
func (p *Pool) isHeld(id ID) bool { return p.queue != nil && p.queue.byID[id] != nil }

// forgetHeld drops the request of that id, if it is held: its client has left,
// or the proxy has gone on without a decision. It reports whether it was.
func (p *Pool) forgetHeld(id ID) bool {
	if p.queue == nil {
		return false
	}
	h := p.queue.byID[id]
	if h == nil {
		return false
	}
	p.queue.bands[h.band].counts[h.tenant.class].Gone++
	p.abandon(h, "client_gone")
	return true
}

// setAdmission makes a the pool's, nil for none. What waits stays.
func (p *Pool) setAdmission(c *Admission, now time.Duration) {
	old := p.queue
	p.queue = nil
	var a *admission
	if c != nil && len(c.Bands) > 0 {
		a = newAdmission(*c)
		p.queue = newQueue(a)
	}
	p.admission.Store(a)
	p.refresh()
	if old == nil {
		return
	}
	if a != nil {
		p.queue.drain = old.drain
		for i := range old.bands {
			for k := range a.Bands {
				if a.Bands[k].Name == old.Bands[i].Name {
					p.queue.bands[k].carry(old, i, a)
				}
			}
		}
	}
	for i := range p.reservations.byID {
		v := p.reservations.find(i)
		if a == nil {
			v.request.Band = 0
			continue
		}
		v.request.Band = a.bandNamed(old.Bands[min(v.request.Band, len(old.Bands)-1)].Name)
		p.placed(v, 1)
	}
	for len(old.byID) > 0 {
		h := old.due.first().value
		band := old.Bands[h.band].Name
		old.remove(h)
		if a == nil || !a.Hold {
			p.decide(h.request, h.decision, now)
			h.waiter.Bound()
			continue
		}
		h.band = a.bandNamed(band)
		h.request.Band = h.band
		p.queue.add(h, now, p.poolSpeed())
	}
	p.freed(now)
}

// setSpills notes which pools take what this one has no place for.
func (p *Pool) setSpills(byName map[string]*Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spillTo = nil
	if p.queue == nil {
		return
	}
	for i := range p.queue.Bands {
		p.spillTo = append(p.spillTo, byName[p.queue.Bands[i].Spill])
	}
}

// letAllGo decides all that waits at once, and what comes later too.
func (p *Pool) letAllGo(now time.Duration) {
	p.letGo = true
	q := p.queue
	if q == nil {
		return
	}
	for len(q.byID) > 0 {
		h := q.due.first().value
		q.remove(h)
		p.decide(h.request, h.decision, now)
		p.tell(h)
	}
}

// Drain ends all waiting, for a process that is about to end: every request
// that is held, and each that comes, is decided at once.
func (d *Decider) Drain() {
	for _, p := range d.Pools() {
		p.mu.Lock()
		p.letAllGo(p.clock())
		p.mu.Unlock()
	}
}

// Holds reports whether requests are held in any pool, now or by its
// admission, so that Release is to be called.
func (d *Decider) Holds() bool {
	for _, p := range d.Pools() {
		if a := p.admission.Load(); a != nil && a.Hold {
			return true
		}
	}
	return false
}

// Release binds and refuses by the clock what no event does: the owner of a
// decider that Holds calls it every 20 ms or so.
func (d *Decider) Release() {
	for _, p := range d.Pools() {
		if a := p.admission.Load(); a != nil && a.Hold {
			p.mu.Lock()
			p.freed(p.clock())
			p.mu.Unlock()
		}
	}
}

// Delayed tells how late the news of a first token was.
func (p *Pool) Delayed(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by = min(max(by, 0), 5*time.Second)
	if p.lateness == 0 {
		p.lateness = by
	}
	p.lateness += (by - p.lateness) / 8
}
