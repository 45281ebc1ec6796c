package decider

import (
	"slices"
	"time"
)

const (
	// prefillAhead is the prefill backlog, in tokens, up to which a replica gets more: just
	// enough to keep it busy until the next report.
	prefillAhead = 1024
	// signalsKept is how long an engine's report of its load counts.
	signalsKept = 5 * time.Second
	// engineQueue is how many requests that the pool does not know may wait in an engine.
	engineQueue = 5
	// blindAfter is how long without reports the pool believes that its replicas
	// are full.
	blindAfter = 15 * time.Second
	// limitGrows is how often a learned concurrency limit is raised by one.
	limitGrows = 10 * time.Second
)

// capacity tracks which replicas of a pool can take another request. It lives under the
// pool's lock.
type capacity struct {
	pool       *Pool
	free       []bool        // by replica index, as of the last update
	idle       []int         // those free ones that compute no prompt
	configured time.Duration // Admission.FeedbackDelay
	measured   time.Duration // the same as Pool.Delayed reports; 0 = no report
}

// update works out which replicas have capacity, and reports whether any has.
func (c *capacity) update(now time.Duration) (some bool) {
	p := c.pool
	if cap(c.free) < len(p.replicas) {
		c.free = make([]bool, len(p.replicas))
	}
	c.free = c.free[:len(p.replicas)]
	clear(c.free)
	c.idle = c.idle[:0]
	for _, i := range p.open {
		r := p.replicas[i]
		c.free[i] = c.saturation(r, now) == ""
		some = some || c.free[i]
		if c.free[i] && r.prefill.n == 0 {
			c.idle = append(c.idle, i)
		}
	}
	return some
}

// feedbackDelay is how late the feed reports first tokens.
func (c *capacity) feedbackDelay() time.Duration {
	if c.measured > 0 {
		return c.measured
	}
	return c.configured
}

// Delayed reports how late the feed reported a first token.
func (p *Pool) Delayed(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.admission.capacity
	by = min(max(by, 0), 5*time.Second)
	if c.measured == 0 {
		c.measured = by
	}
	c.measured += (by - c.measured) / 8
}

// saturation names what keeps a replica from being given more, or "".
func (c *capacity) saturation(r *Replica, now time.Duration) string {
	p := c.pool
	s := &r.signals
	others := p.admission.elsewhere.leftOn(r.index)
	reports := s.Known && now-s.At < signalsKept
	switch limit := r.concurrency.limit(now); {
	case !r.open():
		return r.state(now)
	case r.limit > 0 && r.inFlight+others.requests >= r.limit:
		return "full"
	case p.load.backlog(r, now)+others.cost >= prefillAhead+p.load.speedOf(r)*c.feedbackDelay().Seconds():
		return "prefill"
	case reports && s.Waiting == 0 && s.Running > 0:
		// The engine starts what it gets: a limit learned before no longer holds.
		r.concurrency = concurrency{}
	case limit > 0 && r.inFlight+others.requests >= limit:
		return "running"
	case c.overdue(r, now):
		// The engine computes less than expected: it lacks memory or places.
		r.concurrency = concurrency{max(1, r.inFlight-r.prefill.n), now}
		return "overdue"
	}
	if reports && s.Waiting >= r.prefill.n+engineQueue {
		return "engine_queue"
	}
	if r.inFlight > 0 && r.limit == 0 && p.inUse(r, r.trust(now)) > float64(r.CacheTokens()) {
		return "memory"
	}
	return ""
}

// concurrency is the learned limit of the requests that a replica runs well.
type concurrency struct {
	found int           // requests that it ran when it was slow to begin another; 0 = none yet
	at    time.Duration // when
}

// limit is the concurrency limit now; 0 = unknown. It grows with time.
func (c *concurrency) limit(now time.Duration) int {
	if c.found == 0 {
		return 0
	}
	grown := int((now - c.at) / limitGrows)
	if grown > c.found {
		c.found = 0 // it doubled without trouble: whatever it was is over
		return 0
	}
	return c.found + grown
}

// overdue reports whether the first token of the request that r must be
// computing is far later than predicted.
func (c *capacity) overdue(r *Replica, now time.Duration) bool {
	p, q := c.pool, &r.prefill
	if q.n == 0 {
		return false
	}
	head := p.account.at(q.first)
	expected := seconds(head.prefill.cost / p.load.speedOf(r))
	return p.load.isReported(head, now) && now-q.since > 2*expected+time.Second+2*c.feedbackDelay()
}

// blind reports whether the pool has had no reports for so long that its view of its
// replicas may be wrong. A long prompt takes as long too. So it is not wrong where engines
// or the proxy count the requests on all open replicas, which ends those whose outcomes were
// lost.
func (c *capacity) blind(now time.Duration) bool {
	p := c.pool
	if now-p.reportedAt <= blindAfter {
		return false
	}
	return now < p.reclaims.until || slices.ContainsFunc(p.open, func(i int) bool {
		r := p.replicas[i]
		byEngine, byProxy := counted(p, r, now)
		return !byEngine && (!byProxy || r.ofProxy < r.inFlight)
	})
}
