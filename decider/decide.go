package decider

import "time"

// Decision is the answer to one request.
type Decision struct {
	Pool      string
	Server    string    // "" = the proxy balances by itself
	Rank      string    // of the server's engine that is to serve it; "" = it has none
	Prefill   string    // address of the replica that is to compute the prompt; "" = the server does
	Fallbacks [2]string // to use when the server is down, in order; "" = none
	Status    int       // not 0: answer with this HTTP status instead
	Reason    string    // the message for the client; safe inside a JSON string
	Retry     int       // seconds, for Retry-After; 0 = none
	Why       string    // one word for logs and records
	Input     int       // prompt tokens
	Cost      int       // of these, those that the server has to compute

	// With an admission only:
	Band    string        // the request's
	Wait    time.Duration // how long it was held
	Class   int           // its place in the proxy's queues, lowest first,
	Offset  int           // and in its class, milliseconds; both only if
	Ordered bool          // the proxy is to queue

	// Unsteered: the pool is in shadow, and the proxy is to do as if it were alone.
	Unsteered bool
}

// Decide chooses a replica for r, reserves it and fills d. r.Pool must be set,
// as Read does. Decide does not allocate in steady state.
func (p *Pool) Decide(r *Request, d *Decision) {
	p.mu.Lock()
	defer p.mu.Unlock() // also when a policy panics
	now := p.clock()
	*d = Decision{Pool: p.name}
	p.stats.Decisions++
	if tooLate(p, r, d) {
		return
	}
	if p.Shadows(r) {
		shadowed(p, r, d, now)
		return
	}
	p.decide(r, d, now)
}

// tooLate reports whether the proxy has gone on without waiting for the answer: the request
// has ended, or a replica has it. An agent that was stopped reads such questions when it
// continues, before or after the feed.
func tooLate(p *Pool, r *Request, d *Decision) bool {
	id := r.ID
	v := p.find(id)
	if adopted := v != nil && v.decided == nil && !v.unguided; !adopted && !p.gone.pop(id) {
		return false
	}
	d.Why = "client_gone"
	refund(p, r)
	p.stats.ClientGone++
	return true
}

// decide chooses a replica for r as it comes. The caller holds the lock.
func (p *Pool) decide(r *Request, d *Decision, now time.Duration) {
	rankWhole(p, r, now)
	p.grant(r, d, now)
}

// grant reserves the first replica of p.order, as rank left it, for r.
func (p *Pool) grant(r *Request, d *Decision, now time.Duration) {
	if len(p.order) == 0 {
		d.Why = p.whyNone(r)
		p.stats.Undecided++
		p.load.demand.add(prefillCost(r.Input, r.Input), now)
		if down := d.Why == adapterDown; down || len(p.open) == 0 && p.config.RetryAfter > 0 {
			d.Status, d.Reason = 503, noReplica
			d.Retry = max(1, int((p.config.RetryAfter+time.Second-1)/time.Second))
		}
		p.records.add(p, r, d, now)
		if d.Status != 0 {
			refund(p, r)
			recordRefusal(p, r, d.Status, d.Wait, now)
		} else if p.RecordsText() || r.Charge.Made() {
			unplace(p, r, now)
		}
		return
	}
	chosen := p.replicas[p.order[0]]
	d.Server, d.Rank, d.Why = chosen.name, chosen.rank, p.filters.why()
	for i, o := range p.order[1:min(3, len(p.order))] {
		d.Fallbacks[i] = p.replicas[o].name
	}
	p.records.add(p, r, d, now)
	p.filters.count()
	chosen.chosen++
	d.Input = max(r.Input, 0)
	p.stats.InputTokens += uint64(max(r.Input, 0))
	cached, achievable := p.view.held(chosen.index), p.view.mostHeld()
	d.Cost = max(d.Input-cached, 0)
	p.stats.CachedTokens += uint64(cached)
	for k, n := range p.view.heldSlow(chosen.index) {
		p.stats.SlowTokens[k] += uint64(n)
	}
	p.stats.AchievableTokens += uint64(achievable)
	p.hits.add(max(r.Input, 0), cached, achievable, now)
	seen := r.Blocks
	defer func() { r.Blocks = seen }()
	r.Blocks = p.caches.extrapolate(r, p.config.BlockTokens, now)
	prefill, _ := p.legs.choose(p, r, chosen, now)
	if prefill != nil {
		d.Prefill = prefill.address
		p.records.prefilledBy(prefill)
	} else if chosen.role == RoleDecode {
		p.legs.counts.Local++
	}
	p.reserve(r, len(seen), chosen, prefill, d.Wait, now)
	if chosen.suspect() {
		chosen.probed = max(now, 1)
	}
	if p.observer != nil {
		p.observeReserved(p.observer, r, chosen.index)
	}
}

// noReplica is the message to clients while no replica is open.
const noReplica = "no replica of the model is up; one may be starting"
