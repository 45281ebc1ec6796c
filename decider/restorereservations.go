package decider

import (
	"math"
	"time"
)

// reservations reads what was reserved.
func (x *restore) reservations() {
	for len(x.d.b) > 0 && !x.d.bad {
		x.pool.mu.Lock()
		now := x.pool.clock()
		before := x.budget
		for i := 0; i < restoredAtOnce && before-x.budget < restoredBlocksAtOnce && len(x.d.b) > 0; i++ {
			x.reservation(now)
		}
		x.pool.mu.Unlock()
	}
}

// reservation reads one of them, as reservation of snapshot writes it.
func (x *restore) reservation(now time.Duration) {
	p, d := x.pool, &x.d
	if x.reserved++; x.reserved > mostReserved {
		d.fail()
	}
	var v reservation
	r := &v.request
	copy(v.id[:], d.bytes(len(v.id)))
	at, replica := x.replica()
	decided := d.count(len(x.replicas))
	f := d.flags(8)
	v.started, v.prefill.queued, v.prefill.reported, v.prefill.measured = f[0], f[1], f[2], f[3]
	r.HasSession, r.Stream, r.Cut, r.Short = f[4], f[5], f[6], f[7]
	v.at = now - d.age() - x.old
	silent := d.age() + x.old
	v.waited = d.age()
	v.tokens, v.input = d.count(2*mostContext), d.count(mostContext)
	uncached, backlog := d.count(mostContext), d.number(mostLearned)
	r.Output = d.signed(mostContext)
	r.TextBytes, r.ExactTokens = d.count(math.MaxInt32), d.count(mostContext)
	r.Priority = d.signed(math.MaxInt32)
	r.Band = d.count(math.MaxInt16)
	r.Tenant, r.Origin, r.Session = d.fixed(), d.fixed(), d.fixed()
	r.Model = d.text(longestName)
	if d.flags(1)[0] {
		r.LoRA = r.Model
	}
	if d.bad {
		return
	}
	r.Blocks = d.runs(x.keys[at], &x.budget)
	if d.bad || replica == nil || replica.index < 0 || p.holds(v.id) || p.gone.pop(v.id) {
		return
	}
	if x.from != "" && p.peers.of(x.from).held >= MostPeerReservations {
		return
	}
	if !x.comparable {
		r.Blocks = nil
	}
	if decided > 0 {
		v.decided = x.replicas[decided-1]
	}
	r.ID, r.Pool, r.Input = v.id, p, v.input
	if p.admission.on() {
		r.Band = p.admission.Clamp(r.Band)
	} else {
		r.Band = 0
	}
	v.lease = now + p.lease - silent
	if x.from == "" {
		v.lease = min(v.lease, now+restoredLease)
	}
	v.from = x.from
	restored := p.account.restore(&v, replica, min(uncached, v.input), backlog, now)
	restored.restored = x.from == ""
	p.admission.sent(restored, 1)
	if x.from == "" {
		p.report.placed(EventPlaced, restored, now)
	} else {
		p.peers.of(x.from).held++
	}
	x.got.Reservations++
}

// restore makes a reservation like from, which counts on replica again.
func (a *account) restore(from *reservation, replica *Replica, uncached int, backlog float64, now time.Duration) *reservation {
	v := a.add(from.id)
	v.replica, v.decided, v.from = replica, from.decided, from.from
	v.at, v.lease, v.waited = from.at, from.lease, from.waited
	v.tokens, v.input, v.started = from.tokens, from.input, from.started
	v.request.keep(&from.request)
	a.place(v)
	a.hold(v, uncached, now)
	if !from.prefill.queued || now-v.at > 2*seconds(backlog/a.load.speedOf(replica))+time.Second {
		a.load.dequeue(v, now) // its prompt must be computed by now
	}
	v.prefill.reported, v.prefill.measured = from.prefill.reported, from.prefill.measured
	v.prefill.backlog = backlog
	return v
}
