package decider

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Role is what a replica does of a request.
type Role uint8

// The roles of replicas.
const (
	RoleBoth    Role = iota // it computes prompts and generates answers
	RolePrefill             // it computes prompts, for others to generate the answers
	RoleDecode              // it generates answers; a sidecar has another one compute prompts
)

// String is the role's name.
func (r Role) String() string { return [...]string{"both", "prefill", "decode"}[r] }

// legs chooses prefill replicas for prompts. The proxy sends a request to its decode
// replica, and names a prefill replica in a header: a sidecar of the decode replica sends
// the prompt there, for an answer of one token, and fetches the KV cache. That part of the
// request is its leg. It is a separate reservation on the prefill replica. No proxy reports
// on it: it ends when the engine has counted its first token, or with the first token or
// the end of the request.
//
// It lives under the pool's lock.
type legs struct {
	policy    Policy   // ranks the prefill replicas; nil = none is used
	observer  Observer // policy, if it is one
	usable    []int    // scratch
	order     []int    // scratch
	terms     []float64
	transfers transfers
	answer    float64 // how long an answer takes from its first token on, in seconds; 0 = not known
	counts    LegCounts
}

// LegCounts are the counts of a pool with prefill replicas since the start.
type LegCounts struct {
	Legs   uint64 `json:"legs"`   // requests whose prompts were given to a prefill replica
	Tokens uint64 `json:"tokens"` // of their prompts, to be computed there
	Local  uint64 `json:"local"`  // requests to decode replicas whose prompts were left to these
}

// configure makes policy the one that ranks the prefill replicas.
func (l *legs) configure(policy Policy) {
	l.policy = policy
	l.observer, _ = policy.(Observer)
}

// transfers learns how long a prefill replica takes to send a KV cache. It learns only from
// prefill replicas that count their first tokens: otherwise the speed learned for the
// replica includes the transfer.
type transfers struct{ tokens, seconds float64 }

const (
	// transfersMemory is how many tokens count.
	transfersMemory = 500_000
	// Until transfers were measured, one is assumed to take a quarter of the time of the
	// prefill at the initial speed.
	transfersPrior        = 20_000
	transfersPriorSeconds = transfersPrior / initialSpeed / 4
)

func (t *transfers) add(tokens int, took time.Duration) {
	if tokens <= 0 {
		return
	}
	keep := max(0, 1-float64(tokens)/transfersMemory)
	t.tokens, t.seconds = t.tokens*keep+float64(tokens), t.seconds*keep+max(0, took.Seconds())
}

// expected is how long so many tokens take, in seconds.
func (t *transfers) expected(tokens int) float64 {
	return float64(max(tokens, 0)) * (t.seconds + transfersPriorSeconds) / (t.tokens + transfersPrior)
}

// Legs says where a request's prompt is computed, and why.
type Legs struct {
	Prefill string  `json:"prefill,omitempty"` // the prefill replica; "" = the decode replica does it
	Why     string  `json:"why"`
	There   float64 `json:"there_s"`    // expected seconds until it is computed on the best prefill replica,
	Moved   float64 `json:"transfer_s"` // and until its cache is on the decode replica
	Here    float64 `json:"here_s"`     // expected seconds that it costs on the decode replica, with what it delays there
}

// choose returns the prefill replica that is to compute r's prompt, or nil if decode
// computes it. A leg is made if it costs less time: it delays the first token by the queue
// ahead of it and by the transfer. On the decode replica the prompt would also delay every
// answer that is being generated there.
func (l *legs) choose(p *Pool, r *Request, decode *Replica, now time.Duration) (prefill *Replica, why Legs) {
	v := &p.view
	why.Why = "no_prefill_replica"
	switch {
	case decode.role != RoleDecode || l.policy == nil:
		why.Why = "role"
		return nil, why
	case r.OneToken:
		why.Why = "one_token"
		return nil, why
	case len(p.prefillers) == 0:
		return nil, why
	}
	v.Now = now
	v.matchPrefix(r)
	d := decode.index
	missing := r.Input - v.Cached(d)
	if missing <= 0 {
		why.Why = "cached"
		return nil, why
	}
	best := l.rank(p, r, now)
	if best < 0 {
		return nil, why
	}
	why.There = l.total(v, best)
	why.Here = l.total(v, d) + v.PrefillCost(d)/max(v.PrefillSpeed(d), 1)*v.RunningRequests(d)*l.weight()
	// Earlier transfers from there may take longer than the prefill.
	why.Moved = max(0, l.transfers.expected(p.replicas[best].moving)-why.There) + l.transfers.expected(missing)
	leg := why.There+why.Moved <= why.Here
	why.Why = "time"
	if t := p.config.LegTokens; t > 0 {
		leg, why.Why = missing >= t, "tokens"
	}
	if !leg {
		return nil, why
	}
	prefill = p.replicas[best]
	why.Prefill = prefill.name
	return prefill, why
}

// total is the wait for r's prompt to be computed on replica i, in seconds, plus what it
// would add to the waits of as many requests behind it as are queued there now.
func (l *legs) total(v *View, i int) float64 {
	own := v.PrefillCost(i)
	return (v.PrefillBacklog(i) + own*float64(1+v.PrefillQueueLen(i))) / max(v.PrefillSpeed(i), 1)
}

// firstTokenDue is the time to a first token that most services promise. A delay during an
// answer counts less than one before its first token, by the ratio of this time to that of
// an answer: it is spread over the whole answer.
const firstTokenDue = 2.0

// usualAnswer is how long answers take where that is not known yet, in seconds.
const usualAnswer = 10.0

// weight is how much a delay of an answer counts.
func (l *legs) weight() float64 {
	if l.answer == 0 {
		return firstTokenDue / usualAnswer
	}
	return min(1, firstTokenDue/l.answer)
}

// answersOver is over how many answers their time is a mean.
const answersOver = 256

// answered learns how long the answer of v took.
func (l *legs) answered(v *reservation, o *Outcome, now time.Duration) {
	if !v.started || o.End != Served || v.ttft == 0 || v.replica.role != RoleDecode {
		return
	}
	took := max(0, now-(v.at+v.ttft-v.waited)).Seconds()
	if l.answer == 0 {
		l.answer = took
	}
	l.answer += (took - l.answer) / answersOver
}

// preview is choose without side effects.
func (l *legs) preview(p *Pool, r *Request, decode *Replica, now time.Duration) (x Legs) {
	chance := p.view.Rand
	defer func() { p.view.Rand = chance }()
	p.view.Rand = rand.New(rand.NewPCG(uint64(now), 1))
	l.usable = l.usable[:0]
	if f, ok := l.policy.(Previewer); ok {
		f.Preview(func() { _, x = l.choose(p, r, decode, now) })
		return x
	}
	_, x = l.choose(p, r, decode, now)
	return x
}

// explain completes the explanation of a replica that only computes prompts.
func (l *legs) explain(p *Pool, c *Candidate, rep *Replica, now time.Duration) {
	w := len(p.terms)
	if k := slices.Index(l.usable, rep.index); k >= 0 && len(l.terms) >= (k+1)*w {
		c.Terms = named(p.terms, l.terms[k*w:(k+1)*w])
	}
	if c.Excluded = rep.state(now); c.Excluded == "up" {
		c.Excluded = "prefill only"
	}
}

// rank returns the index of the best prefill replica for r, -1 if none can take it. The
// view of the decode replicas is unchanged afterwards.
func (l *legs) rank(p *Pool, r *Request, now time.Duration) int {
	v := &p.view
	l.usable = l.usable[:0]
	for _, i := range p.prefillers {
		c := p.replicas[i]
		if (c.limit == 0 || c.inFlight < c.limit) && p.serves(c, r.LoRA) && p.trusted(c, now) {
			l.usable = append(l.usable, i)
		}
	}
	if len(l.usable) == 0 {
		return -1
	}
	candidates, terms, width, ahead, inFlight, mean := v.Candidates, v.terms, v.width, v.ahead, v.inFlight, v.mean
	defer func() { // also when the policy panics
		l.terms = v.terms
		v.Candidates, v.terms, v.width, v.ahead, v.inFlight, v.mean, v.lookedUp = candidates, terms, width, ahead, inFlight, mean, 0
		v.memo.scarce = -1
	}()
	v.Candidates, v.terms, v.ahead, v.inFlight, v.lookedUp = l.usable, l.terms, nil, -1, 0
	v.memo.scarce = -1
	resetTerms(v, len(p.terms))
	l.order = l.policy.Rank(r, v, l.order[:0])
	if len(l.order) == 0 {
		return l.usable[v.Rand.IntN(len(l.usable))]
	}
	return l.order[0]
}

// hasRole reports whether a replica of the pool has the role.
func hasRole(p *Pool, role Role) bool {
	return slices.ContainsFunc(p.replicas, func(r *Replica) bool { return r.role == role })
}

// legOf is the id of the leg of a request.
func legOf(id ID) ID {
	for i := range id {
		id[i] ^= 0xa5
	}
	return id
}

// begin reserves the leg of r on prefill, before the request itself, so that a loop over
// the reservations which ends one does not come to another that ended with it.
func (l *legs) begin(p *Pool, r *Request, prefill *Replica, now time.Duration) {
	id := legOf(r.ID)
	if old := p.find(id); old != nil {
		p.stats.Replaced++
		replace(p, old, now)
	}
	leg := *r
	leg.ID, leg.Output, leg.Origin, leg.HasSession = id, 1, 0, false
	leg.Charge.Forget()
	v := p.account.reserve(&leg, prefill, nil, now)
	v.leg, v.waited = true, 0
	prefill.chosen++
	if prefill.suspect() {
		prefill.probed = max(now, 1)
	}
	l.counts.Legs++
	l.counts.Tokens += uint64(max(v.uncached, 0))
	if l.observer != nil {
		p.observeReserved(l.observer, &v.request, prefill.index)
	}
	p.report.placed(EventPlaced, v, now)
}

// of is the leg of v that has not ended, or nil.
func (l *legs) of(p *Pool, v *reservation) *reservation {
	if !v.remote || v.from != "" {
		return nil
	}
	if leg := p.find(legOf(v.id)); leg != nil && leg.leg {
		return leg
	}
	return nil
}

// firstToken notes the first token of v, whose prompt was computed elsewhere.
func (l *legs) firstToken(p *Pool, v *reservation, now time.Duration) {
	if leg := l.of(p, v); leg != nil {
		if !leg.started {
			firstToken(p, leg, now-leg.at, true, now)
		}
		l.end(p, leg, now)
	}
}

// arrived learns from the first token of v, ttft after it was decided, how long the
// transfer took.
func (l *legs) arrived(v *reservation, ttft time.Duration) {
	if !v.remote || v.via == nil || ttft <= 0 {
		return
	}
	at := v.at + ttft
	if v.computed > 0 { // one after another
		l.transfers.add(v.missing, at-max(v.computed, v.via.movedAt))
	}
	v.via.movedAt = max(v.via.movedAt, at)
}

// computed notes that the engine of leg has computed the prompt.
func (l *legs) computed(p *Pool, leg *reservation, now time.Duration) {
	if leg.from != "" {
		return
	}
	if v := p.find(legOf(leg.id)); v != nil && v.remote && !v.started {
		v.computed = max(now, 1)
	}
	if !leg.started {
		begin(p, leg, now-leg.at, now)
	}
	l.end(p, leg, now)
}

// end ends a leg whose prompt is computed.
func (l *legs) end(p *Pool, leg *reservation, now time.Duration) {
	o := Outcome{End: Served}
	leg.prefill.reported = true
	l.works(p, leg.replica, now)
	p.release(leg, o, now)
	p.report.ended(leg, &o)
}

// works notes that a prefill replica has computed a prompt.
func (l *legs) works(p *Pool, r *Replica, now time.Duration) {
	r.served++
	if r.index >= 0 {
		p.worked(r, now)
	}
}

// observerOf returns the observer of v: the policy that has chosen its replica.
func observerOf(p *Pool, v *reservation) Observer {
	if v.leg {
		return p.legs.observer
	}
	return p.observer
}

// arrived notes that v does not wait for its first token on r any more.
func (r *Replica) arrived(v *reservation) {
	if v.remote && !v.started {
		r.remote--
		if v.via != nil {
			v.via.moving -= v.missing
		}
		r.firstTokens.remote = min(r.firstTokens.remote, r.remote)
	}
}

// ended ends the leg of v, which has ended with o.
func (l *legs) ended(p *Pool, v *reservation, o *Outcome, now time.Duration) {
	l.answered(v, o, now)
	leg := l.of(p, v)
	if leg == nil {
		return
	}
	if o.End == Served && o.computed() { // nobody reports first tokens as they come
		l.works(p, leg.replica, now)
	}
	own := Outcome{End: o.End, Status: o.Status, TTFT: o.TTFT}
	p.release(leg, own, now)
	p.report.ended(leg, &own)
}

// failed reports whether the failure of v counts against its leg. The sidecar answers with
// a gateway error when it does not reach the prefill replica, and also when its own engine
// is gone. Unless the prompt is known to be computed, the prefill replica is left out for a
// while: that is safe, as the decode replicas then compute prompts themselves.
func (l *legs) failed(p *Pool, v *reservation, o *Outcome, now time.Duration) bool {
	if v == nil || v.started {
		return false
	}
	leg := l.of(p, v)
	if leg == nil || o.End != TimedOut && (o.End != Failed || o.Status == 500 || o.Status == 501) {
		return false
	}
	r := leg.replica
	r.failed++
	if now >= r.ejectedUntil() {
		p.suspected(r)
		r.softUntil = now + pauseAfter(r.failures)
		p.ejectedUntil = max(p.ejectedUntil, r.softUntil)
	}
	return true
}
