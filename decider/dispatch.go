package decider

import (
	"slices"
	"time"

	"pointsman/decider/queue"
)

const (
	// stealing: an idle replica takes a request that another one would serve
	// better when the gain exceeds this many times the tokens computed twice.
	stealing = 4
	// LateBlocking is the weight, in late binding, of the time that a long prompt keeps others
	// waiting.
	LateBlocking = 0.4
	// LateSpared is how many times its own work, in late binding, a prompt delays others at
	// most where these have enough other replicas.
	LateSpared = 2
	// maxConsidered bounds the requests that are considered for one assignment.
	maxConsidered = 128
)

// dispatch assigns waiting requests to replicas with capacity, and refuses those that have
// waited too long. The caller holds the lock.
func (a *admission) dispatch(now time.Duration) {
	if !a.on() || a.queue.Len() == 0 {
		return
	}
	if !a.stall.excuses(now) {
		a.refuseOverdue(now)
	}
	a.elsewhere.begin(len(a.pool.replicas))
	defer a.elsewhere.begin(0)
	for a.queue.Len() > 0 {
		it := a.tryNext(now)
		a.mask.on = false
		switch {
		case it == nil:
			return
		case it.Value.elsewhere != nil:
			a.elsewhere.leave(it, now)
		default:
			a.assign(it, now)
		}
	}
}

// stall detects time in which the process did not run. A process that was stopped, or
// starved of CPU, cannot know which replicas had capacity. The time that it lost does not
// count against waiting requests, and none is refused until it has had as much time again
// to read what happened.
type stall struct {
	ticked time.Duration // when Dispatch was last called; 0 = never
	until  time.Duration // nobody is refused before
	lost   time.Duration // in all
}

const (
	// stallGap is the longest time between two calls of Dispatch by a process that
	// runs.
	stallGap = 60 * time.Millisecond
	// stallMost bounds the time that one stop counts for.
	stallMost = 5 * time.Second
)

// excuses reports whether the process lost time, and has not caught up.
func (s *stall) excuses(now time.Duration) bool {
	if gap := min(now-s.ticked, stallMost); s.ticked > 0 && gap > stallGap {
		s.until = max(s.until, now+gap)
		s.lost += gap
		s.ticked = now
	}
	return now < s.until
}

// refuseOverdue answers the requests that are due.
func (a *admission) refuseOverdue(now time.Duration) {
	for it := a.queue.Overdue(now); it != nil; it = a.queue.Overdue(now) {
		if it.Value.elsewhere != nil {
			a.elsewhere.forget(it) // its agent answers it
			continue
		}
		if lost := a.stall.lost - it.Value.lost; lost > 0 {
			it.Value.lost = a.stall.lost
			a.queue.Postpone(it, lost)
			continue
		}
		a.queue.Remove(it)
		r, d := it.Value.request, it.Value.decision
		d.Wait = now - it.At
		switch {
		case a.holdsWithoutReplica(now):
			// It gets what it would have got at once without being held: a 503, or the
			// proxy's own answer.
			a.tryDecide(r, d, now)
			if d.Status != 0 {
				a.counts.Of(it.Band, it.Tenant).Refused[queue.NoReplica]++
			}
		case it.Late():
			a.refuse(r, d, queue.Late, now)
		default:
			a.refuse(r, d, queue.Waited, now)
		}
		a.answer(it)
	}
}

// tryNext is next; a policy that panics costs the first in line its decision,
// not the goroutine that happened to report an event.
func (a *admission) tryNext(now time.Duration) (it *queue.Item[held]) {
	defer func() {
		if r := recover(); r != nil {
			a.pool.panics.note(r)
			a.pool.order = a.pool.order[:0]
			it = a.elsewhere.firstOwn()
		}
	}()
	return a.next(now)
}

// assign sends an item to the first replica of the pool's order.
func (a *admission) assign(it *queue.Item[held], now time.Duration) {
	p, r, d := a.pool, it.Value.request, it.Value.decision
	leaves(a, it, now)
	d.Wait = now - it.At
	c := a.counts.Of(it.Band, it.Tenant)
	c.Admitted++
	c.Wait(d.Wait)
	p.grant(r, d, now)
	a.answer(it)
}

// leaves removes an item that goes to a replica, and charges its tenant.
func leaves(a *admission, it *queue.Item[held], now time.Duration) {
	p := a.pool
	a.queue.Serve(it)
	if a.queue.Len() > 0 {
		a.departure.add(it.Work, (now - a.departed).Seconds(), p.load.totalSpeed(&p.members))
		a.departed = now
	}
}

// next returns the item to assign now, or nil. The pool's order then begins with its
// replica.
func (a *admission) next(now time.Duration) *queue.Item[held] {
	p := a.pool
	a.mask.on = false
	if !a.capacity.update(now) {
		if a.holdsWithoutReplica(now) {
			p.reportedAt = now // there is nothing to report
			return nil
		}
		if len(p.open) > 0 && !a.capacity.blind(now) {
			return nil
		}
		// No replica is open, or nothing reports how full they are: the proxy does what it
		// can. One request at a time is enough to learn more.
		it := a.elsewhere.firstOwn()
		if it == nil {
			return nil
		}
		p.reportedAt = now - blindAfter + time.Second
		rankWhole(p, it.Value.request, now)
		return it
	}
	left := maxConsidered
	a.begin()
	defer a.end()
	for _, band := range a.queue.Turns() {
		a.restrict(band, now)
		for k := range a.queue.Tenants(band) {
			if it := a.pick(a.queue.Tenant(band, k), band, &left, now); it != nil {
				return it
			}
			if left <= 0 {
				return nil
			}
		}
	}
	return nil
}

// pick returns the tenant's item to assign now, or nil. Of a long line it considers the first
// ones, and a sample of the rest, each of which counts for those that it leaves out: else
// replicas stay idle while all of the first ones wait for others.
func (a *admission) pick(t *queue.Tenant[held], band int, left *int, now time.Duration) *queue.Item[held] {
	p := a.pool
	scored := a.Band(band).Order == queue.ByWork
	var best *queue.Item[held]
	bestScore, bestReplica := 0.0, -1
	step := 1
	for k := 0; k < t.Len(); k += step {
		if *left--; *left < 0 {
			break
		}
		if step == 1 && *left > 0 && *left <= maxConsidered/2 {
			step += (t.Len() - k) / *left // a sample of those far behind
		}
		it := t.Item(k)
		if a.elsewhere.passes(it, now) {
			continue
		}
		replica := a.place(it.Value.request, now)
		if replica < 0 {
			a.expect(step)
			continue
		}
		if !scored {
			return it
		}
		score := it.Aged(float64(it.Value.request.Input-p.view.Cached(replica)), p.load.poolSpeed(), now)
		if best == nil || score < bestScore {
			best, bestScore, bestReplica = it, score, replica
		}
	}
	if best != nil {
		rankWhole(p, best.Value.request, now)
		p.prefer(bestReplica)
	}
	return best
}

// begin starts counting the requests held for each replica. Without the count, a replica
// that many requests wait for would look free, and all would wait for it beside idle ones.
func (a *admission) begin() {
	n := len(a.pool.replicas)
	a.ahead = slices.Grow(a.ahead[:0], n)[:n]
	clear(a.ahead)
	for i, l := range a.elsewhere.left {
		a.ahead[i] = l.cost
	}
	a.pool.view.ahead = a.ahead
}

// expect counts the request just ranked, and others like it, as waiting for the first
// replica of the pool's order. A long prompt counts as a usual one: shorter ones go before it.
func (a *admission) expect(n int) {
	p := a.pool
	if len(p.order) > 0 {
		best := p.order[0]
		a.ahead[best] += float64(n) * min(p.view.PrefillCost(best), p.load.typical)
	}
}

// end stops the count that begin started.
func (a *admission) end() { a.pool.view.ahead = nil }

// place finds the replica that r may be assigned to now, puts it first into the
// pool's order and returns it; -1 = none.
func (a *admission) place(r *Request, now time.Duration) int {
	p := a.pool
	rankWhole(p, r, now)
	if len(p.order) == 0 {
		return -1
	}
	best := p.order[0]
	if a.capacity.free[best] {
		return best
	}
	if thief := a.thief(best); thief >= 0 {
		p.prefer(thief)
		return thief
	}
	return -1
}

// thief returns an idle replica that should take the request just ranked rather than let it
// wait for best; -1 = none.
func (a *admission) thief(best int) int {
	p := a.pool
	v := &p.view
	found := -1
	if len(a.capacity.idle) == 0 {
		return found
	}
	use := v.PrefillUse()
	blocking := func(i int) float64 {
		var l Load
		v.Load(i, &l)
		own := v.PrefillCost(i)
		return use * v.Blocking(l.Requests, own, LateBlocking*v.Length(own), LateSpared)
	}
	there := (v.PrefillBacklog(best) + v.PrefillCost(best)) / v.PrefillSpeed(best)
	for _, i := range a.capacity.idle {
		c := p.replicas[i]
		if found >= 0 && c.tokens >= p.replicas[found].tokens {
			continue
		}
		extra := float64(v.Cached(best) - v.Cached(i))
		gain := there*v.PrefillSpeed(i) - v.PrefillCost(i)
		if gain <= max(0, stealing*extra) || !slices.Contains(v.Candidates, i) {
			continue
		}
		if gain > max(0, stealing*extra)+max(0, blocking(i)-blocking(best)) {
			found = i
		}
	}
	return found
}

// holdsWithoutReplica reports whether requests are held although no replica is open. They
// are not if the proxy's last report of its servers is old, or if discovery has not found
// the replicas yet: the proxy may know better.
func (a *admission) holdsWithoutReplica(now time.Duration) bool {
	p := a.pool
	if !a.holds() || !a.HoldWithoutReplica || len(p.open) > 0 || p.config.Unfound {
		return false
	}
	if now-p.statesAt <= blindAfter {
		return true
	}
	for _, r := range p.replicas {
		if !r.unhealthy {
			return false
		}
	}
	return len(p.replicas) > 0 || !p.config.Discover
}
