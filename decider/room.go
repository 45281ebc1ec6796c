package decider

import "time"

const (
	// roomTokens is the prefill work that a replica may have before it when it
	// is given more: as little as keeps it busy until the next news of it.
	roomTokens = 1024
	// ageing is the tokens of shorter prompts, as a share of what a replica
	// computes meanwhile, that waiting makes up for.
	ageing = 0.1
	// stealing: an idle replica takes a request that another one would serve
	// better when the gain exceeds this many times the tokens computed twice.
	stealing = 4
	// lookedAt bounds the requests that are looked at for one binding.
	lookedAt = 64
	// signalsKept is how long what an engine said of itself counts.
	signalsKept = 5 * time.Second
	// engineQueue is how many requests more than the pool knows of may wait in
	// an engine.
	engineQueue = 5
	// blindAfter is without news for how long the pool stops believing that
	// its replicas are full.
	blindAfter = 15 * time.Second
	// kneeGrows is how often a learned knee is tried one higher.
	kneeGrows = 10 * time.Second
)

// delay is how late the pool hears of first tokens.
func (p *Pool) delay() time.Duration {
	if p.lateness > 0 {
		return p.lateness
	}
	return p.queue.FeedbackDelay
}

// rooms notes which replicas have room, and reports whether any has.
func (p *Pool) rooms(now time.Duration) (any bool) {
	q := p.queue
	if cap(q.room) < len(p.replicas) {
		q.room = make([]bool, len(p.replicas))
		q.mask = make([]bool, len(p.replicas))
	}
	q.room, q.mask = q.room[:len(p.replicas)], q.mask[:len(p.replicas)]
	clear(q.room)
	for _, i := range p.open {
		q.room[i] = p.saturation(p.replicas[i], now) == ""
		any = any || q.room[i]
	}
	return any
}

// saturation names what keeps a replica from being given more, or "".
func (p *Pool) saturation(c *Replica, now time.Duration) string {
	switch knee := p.knee(c, now); {
	case !c.open():
		return c.state(now)
	case c.limit > 0 && c.inFlight >= c.limit:
		return "full"
	case p.load.backlog(c, now) >= roomTokens+p.load.speedOf(c)*p.delay().Seconds():
		return "prefill"
	case knee > 0 && c.inFlight >= knee:
		return "running"
	case p.overdue(c, now):
		// The engine does not compute what it should: it lacks memory or
		// places.
		c.kneeFound, c.kneeAt = max(1, c.inFlight-c.prefill.n), now
		return "overdue"
	}
	if s := &c.signals; s.Known && now-s.At < signalsKept && s.Waiting >= c.prefill.n+engineQueue {
		return "engine_queue"
	}
	if c.inFlight > 0 && c.limit == 0 && p.held(c) > c.CacheTokens() {
		return "memory"
	}
	return ""
}

// held is how many tokens of c's cache its requests need, as far as known:
// what they share once, where the pool has an image of the cache.
func (p *Pool) held(c *Replica) int {
	if c.cache != nil {
		return c.cache.InUse()*p.view.BlockTokens + c.tokens - c.input
	}
	return c.tokens
}

// knee is the most requests that c runs well; 0 = not known.
func (p *Pool) knee(c *Replica, now time.Duration) int {
	if c.kneeFound == 0 {
		return 0
	}
	grown := int((now - c.kneeAt) / kneeGrows)
	if grown > c.kneeFound {
		c.kneeFound = 0 // it doubled without trouble: whatever it was is over
		return 0
	}
	return c.kneeFound + grown
}

// overdue reports whether the first token of the request that c must be
// computing is far later than predicted.
func (p *Pool) overdue(c *Replica, now time.Duration) bool {
	w := &c.prefill
	if w.n == 0 {
		return false
	}
	head := p.reservations.at(w.first)
	expected := seconds(head.prefill.cost / p.load.speedOf(c))
	return p.load.isReported(head, now) && now-w.since > 2*expected+time.Second+2*p.delay()
}

// blind reports whether the pool has heard nothing for so long that what it
// believes of its replicas may be wrong.
func (p *Pool) blind(now time.Duration) bool { return now-p.newsAt > blindAfter }

// next is the request to be bound now, with p.order beginning with its
// replica, or nil.
func (p *Pool) next(now time.Duration) *held {
	q := p.queue
	q.masked = false
	if !p.rooms(now) {
		if p.awaits(now) {
			p.newsAt = now // there is nothing to be told
			return nil
		}
		if len(p.open) > 0 && !p.blind(now) {
			return nil
		}
		// None is open, or nobody tells how full they are: the proxy is to do
		// what it can. One request at a time is enough to learn more.
		h := q.head()
		p.newsAt = now - blindAfter + time.Second
		p.rank(h.request, now)
		return h
	}
	left := lookedAt
	for _, band := range q.turns() {
		p.restrict(band, now)
		for _, t := range q.bands[band].backlog.list {
			if h := p.pickOf(t.value, band, &left, now); h != nil {
				return h
			}
			if left <= 0 {
				return nil
			}
		}
	}
	return nil
}

// pickOf is the request of t to be bound now, or nil.
func (p *Pool) pickOf(t *tenant, band int, left *int, now time.Duration) *held {
	q := p.queue
	scored := q.Bands[band].Order == LeastWorkLeft
	var best *held
	bestScore, bestReplica := 0.0, -1
	for _, e := range t.list.list {
		if *left--; *left < 0 {
			break
		}
		h := e.value
		replica := p.place(h, now)
		if replica < 0 {
			continue
		}
		if !scored {
			return h
		}
		score := float64(h.request.Input-p.view.Cached(replica)) - ageing*p.poolSpeed()*(now-h.at).Seconds()
		if best == nil || score < bestScore {
			best, bestScore, bestReplica = h, score, replica
		}
	}
	if best != nil {
		p.rank(best.request, now)
		p.prefer(bestReplica)
	}
	return best
}

// place finds the replica that h may be bound to now, puts it first into
// p.order and returns it; -1 = none.
func (p *Pool) place(h *held, now time.Duration) int {
	q := p.queue
	p.rank(h.request, now)
	if len(p.order) == 0 {
		return -1
	}
	best := p.order[0]
	if q.room[best] {
		return best
	}
	if thief := p.thief(best); thief >= 0 {
		p.prefer(thief)
		return thief
	}
	return -1
}

// thief is an idle replica that had better take the request just ranked than
// leave it to wait for best; -1 = none.
func (p *Pool) thief(best int) int {
	v, q := &p.view, p.queue
	found := -1
	for _, i := range v.Candidates {
		c := p.replicas[i]
		if !q.room[i] || c.prefill.n > 0 {
			continue
		}
		extra := float64(v.Cached(best) - v.Cached(i))
		gain := (v.PrefillBacklog(best)+v.PrefillCost(best))/v.PrefillSpeed(best)*v.PrefillSpeed(i) - v.PrefillCost(i)
		if gain > max(0, stealing*extra) && (found < 0 || c.tokens < p.replicas[found].tokens) {
			found = i
		}
	}
	return found
}

// prefer puts replica i first into p.order.
func (p *Pool) prefer(i int) {
	for k, o := range p.order {
		if o == i {
			p.order[0], p.order[k] = i, p.order[0]
			return
		}
	}
	p.order[0] = i
}

// restrict sets which replicas a request of that band may be bound to: in
// turn, those with room; and for a band after others, those that leave enough
// replicas free of its own long prompts for what comes in the others, since
// what an engine computes is not interrupted.
func (p *Pool) restrict(band int, now time.Duration) {
	q := p.queue
	q.masked = q.FIFO
	for i := range q.mask {
		q.mask[i] = !q.FIFO || q.room[i]
	}
	before := 0.0
	for i := range q.bands {
		if i < band && q.Bands[i].Weight == 0 {
			before += q.bands[i].load.perSecond(now)
		}
	}
	if before == 0 || len(p.open) < 2 {
		return
	}
	// Free replicas stay at most reservedUse busy with what comes in them.
	need := min(1+int(before/(reservedUse*p.poolSpeed())), len(p.open)-1)
	free := 0
	for _, i := range p.open {
		if p.replicas[i].longFrom(band) == 0 {
			free++
		}
	}
	if free > need {
		return
	}
	q.masked = true
	for _, i := range p.open {
		if p.replicas[i].longFrom(band) == 0 {
			q.mask[i] = false
		}
	}
}

// reservedUse is the share of their time that replicas kept for urgent
// requests are meant to be busy.
const reservedUse = 0.4

// longFrom is how many requests of that band, or of later ones, have their
// prompts computed on the replica.
func (r *Replica) longFrom(band int) (n int) {
	for _, k := range r.prefill.long[min(band, maxBands-1):] {
		n += k
	}
	return n
}

// maxBands bounds the bands that are told apart on a replica; later ones are
// taken together.
const maxBands = 8

// masked leaves those of candidates that the queue allows now.
func (p *Pool) masked(candidates []int) []int {
	q := p.queue
	q.some = q.some[:0]
	for _, i := range candidates {
		if q.mask[i] {
			q.some = append(q.some, i)
		}
	}
	return q.some
}
