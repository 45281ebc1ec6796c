package decider

import "time"

const (
	// prefillAhead is the prefill work, in tokens, that a replica may have before
	// it when it is given more: as little as keeps it busy until the next report.
	prefillAhead = 1024
	// signalsKept is how long what an engine reported of itself counts.
	signalsKept = 5 * time.Second
	// engineQueue is how many requests more than the pool knows of may wait in
	// an engine.
	engineQueue = 5
	// blindAfter is how long without reports the pool believes that its replicas
	// are full.
	blindAfter = 15 * time.Second
	// limitGrows is how often a learned concurrency limit is raised by one.
	limitGrows = 10 * time.Second
)

// capacity is which replicas can take another request. It is worked out anew
// for each assignment and lives under the pool's lock.
type capacity struct {
	free  []bool        // by replica index
	delay time.Duration // of first tokens in the feed, as measured; 0 = not measured
}

// update works out which replicas have capacity, and reports whether any has.
func (c *capacity) update(a *admission, now time.Duration) (any bool) {
	p := a.pool
	if cap(c.free) < len(p.replicas) {
		c.free = make([]bool, len(p.replicas))
	}
	c.free = c.free[:len(p.replicas)]
	clear(c.free)
	for _, i := range p.open {
		c.free[i] = a.saturation(p.replicas[i], now) == ""
		any = any || c.free[i]
	}
	return any
}

// feedbackDelay is how late the feed reports first tokens.
func (a *admission) feedbackDelay() time.Duration {
	if a.capacity.delay > 0 {
		return a.capacity.delay
	}
	return a.FeedbackDelay
}

// Delayed reports how late the news of a first token came.
func (p *Pool) Delayed(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.admission.capacity
	by = min(max(by, 0), 5*time.Second)
	if c.delay == 0 {
		c.delay = by
	}
	c.delay += (by - c.delay) / 8
}

// saturation names what keeps a replica from being given more, or "".
func (a *admission) saturation(c *Replica, now time.Duration) string {
	p := a.pool
	switch limit := c.concurrency.limit(now); {
	case !c.open():
		return c.state(now)
	case c.limit > 0 && c.inFlight >= c.limit:
		return "full"
	case p.load.backlog(c, now) >= prefillAhead+p.load.speedOf(c)*a.feedbackDelay().Seconds():
		return "prefill"
	case limit > 0 && c.inFlight >= limit:
		return "running"
	case a.overdue(c, now):
		// The engine does not compute what it should: it lacks memory or
		// places.
		c.concurrency = concurrency{max(1, c.inFlight-c.prefill.n), now}
		return "overdue"
	}
	if s := &c.signals; s.Known && now-s.At < signalsKept && s.Waiting >= c.prefill.n+engineQueue {
		return "engine_queue"
	}
	if c.inFlight > 0 && c.limit == 0 && p.tokensNeeded(c) > c.CacheTokens() {
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

// overdue reports whether the first token of the request that c must be
// computing is far later than predicted.
func (a *admission) overdue(c *Replica, now time.Duration) bool {
	p, w := a.pool, &c.prefill
	if w.n == 0 {
		return false
	}
	head := p.account.at(w.first)
	expected := seconds(head.prefill.cost / p.load.speedOf(c))
	return p.load.isReported(head, now) && now-w.since > 2*expected+time.Second+2*a.feedbackDelay()
}

// blind reports whether nothing was reported to the pool for so long that what it
// believes of its replicas may be wrong.
func (a *admission) blind(now time.Duration) bool { return now-a.pool.reportedAt > blindAfter }
