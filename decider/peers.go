package decider

import (
	"time"

	"pointsman/decider/queue"
)

// Applied says what became of an event of another agent.
type Applied uint8

// What became of an event.
const (
	AppliedNow     Applied = iota
	AppliedBefore          // the reservation was known, or had ended, or is another agent's
	UnknownPool            // this agent has no such pool,
	UnknownReplica         // or the pool no such replica
	Differs                // our count of the agent's reservations is not its own
	OutOfBounds            // it has a value that no agent sends
)

// Bounds of the reports of another agent.
const (
	mostWait = time.Hour
	// MostPeerReservations bounds what one agent has reserved in a pool.
	MostPeerReservations = 1 << 16
	// lateEvent is how late an event may be and still teach the speed of a replica.
	lateEvent = 250 * time.Millisecond
)

// peer is another agent, as a pool knows it.
type peer struct {
	silent bool // its reservations end by what the engines and proxies report
	held   int  // reservations
	list   uint32
	at     time.Duration // when an event of it was last applied
	late   time.Duration // how late its events are
	// doubted is when it last failed to use a replica that was left to it; 0 = never.
	doubted time.Duration
}

// peers are the other agents. They live under the pool's lock.
type peers struct {
	pool   *Pool
	self   string // the name of this agent among them
	byName map[string]*peer
	lists  uint32 // lists begun
}

// of returns the agent of that name.
func (s *peers) of(name string) *peer {
	x := s.byName[name]
	if x == nil {
		x = &peer{}
		if s.byName == nil {
			s.byName = map[string]*peer{}
		}
		s.byName[name] = x
	}
	return x
}

// answers reports whether an agent ends its reservations itself.
func (s *peers) answers(from string) bool {
	x := s.byName[from]
	return x != nil && !x.silent
}

// leads reports whether this agent is the one, of those that answer, that decides
// which outcomes were lost.
func (s *peers) leads() bool {
	for name, x := range s.byName {
		if !x.silent && name < s.self {
			return false
		}
	}
	return true
}

// ApplyEvent applies an event of the agent from, whose name is not empty.
func (d *Decider) ApplyEvent(from string, e *Event) Applied {
	p := d.Pool(e.Pool)
	switch {
	case p == nil:
		return UnknownPool
	case !e.withinBounds():
		return OutOfBounds
	}
	return p.peers.apply(from, e)
}

// withinBounds reports whether all values of e are ones that agents send.
func (e *Event) withinBounds() bool {
	r := &e.Request
	within := func(n int) bool { return n >= 0 && n <= mostContext }
	return e.Kind > 0 && e.Kind < EventKinds &&
		within(r.Input) && within(r.Output+1) && within(r.TextBytes/8) && within(r.ExactTokens) && r.Cached >= 0 && r.Cached <= r.Input &&
		r.TextBytes >= 0 && len(r.Blocks) <= MostBlocks &&
		e.End <= Expired && e.End != Ends && e.Status >= 0 && e.Status < 1000 && e.TTFT >= 0 && e.Waited >= 0 && e.Age >= 0 && e.Quiet >= 0 && e.Left >= 0 && e.Late >= 0
}

func (s *peers) apply(from string, e *Event) Applied {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	x := s.of(from)
	x.at, x.late = now, e.Late
	switch e.Kind {
	case EventListBegins:
		s.lists++
		x.list = s.lists
		return AppliedNow
	case EventListEnds:
		s.endUnlisted(from, x.list, now)
		p.admission.elsewhere.drop(from, x.list)
		x.silent = false
		p.admission.dispatch(now)
		return AppliedNow
	}
	if e.Kind == EventHeld || e.Kind == EventNotHeld {
		defer p.admission.dispatch(now)
		if e.Kind == EventHeld {
			return s.heldElsewhere(from, x, e, now)
		}
		return s.notHeldElsewhere(from, e)
	}
	replica := p.byName[e.Replica]
	if replica == nil && e.Kind != EventEnded {
		return UnknownReplica
	}
	defer p.admission.dispatch(now)
	if replica != nil && e.Kind != EventDigest {
		replica.peersAt = max(now-e.Late, 1)
	}
	switch e.Kind {
	case EventPlaced, EventListed:
		return s.placed(from, x, e, replica, now)
	case EventDigest:
		setDigests(p, from)
		if d := (digest{e.Count, e.Sum}); replica.digest != d {
			return Differs
		}
		return AppliedNow
	}
	p.reportedAt = now // by a proxy, or an engine
	v := p.find(e.ID)
	if v == nil {
		reappeared(p, e.ID, now)
		return AppliedBefore
	}
	if !s.concerned(from, e, v) {
		return AppliedBefore
	}
	if replica != nil && v.replica != replica {
		p.account.move(v, replica, now)
	}
	switch e.Kind {
	case EventConnected:
		p.renew(v, now)
	case EventFirstToken:
		if v.started {
			if e.ByProxy && v.request.Stream && !v.prefill.reported {
				v.prefill.reported = true
				p.load.proxyReported(now)
			}
			return AppliedBefore
		}
		firstToken(p, v, max(now-v.at-e.Late, 0), e.ByProxy && e.Late < lateEvent, now)
	case EventEnded:
		s.ended(v, e, now)
		return AppliedNow
	}
	if e.Other {
		p.report.reached(e.Kind, v, e.ByProxy)
	}
	return AppliedNow
}

// concerned reports whether an agent may report on v: on a reservation of its own, or on
// one of this agent that its proxy reports on or that it has found lost. Every agent may
// report on reservations of a silent one.
func (s *peers) concerned(from string, e *Event, v *reservation) bool {
	if !e.Other {
		return v.from == from
	}
	return v.from == "" || e.End == Expired && v.from != from && !s.answers(v.from)
}

// placed books a reservation of another agent.
func (s *peers) placed(from string, x *peer, e *Event, replica *Replica, now time.Duration) Applied {
	p := s.pool
	v := p.find(e.ID)
	if v == nil {
		reappeared(p, e.ID, now)
	} else {
		switch {
		case v.from != from:
			return AppliedBefore
		case e.Kind == EventListed:
			v.listed = x.list
			if v.replica != replica {
				p.account.move(v, replica, now)
			}
			if e.Started && !v.started {
				p.load.dequeue(v, now)
				begin(p, v, 0, now)
			}
			p.account.renewed(v, e.Quiet, now)
			return AppliedNow
		}
		p.release(v, Outcome{End: Refused}, now) // it was placed again
	}
	if p.admission.isHeld(e.ID) || x.held >= MostPeerReservations {
		return AppliedBefore
	}
	r := e.request(p)
	p.admission.elsewhere.markCounted(&r)
	v = p.account.accept(from, &r, e, replica, now)
	x.held++
	p.admission.sent(v, 1)
	if e.Kind == EventListed {
		v.listed = x.list
		p.account.renewed(v, e.Quiet, now)
	} else {
		p.admission.elsewhere.sent(v, now)
	}
	if o, ok := p.observer.(PeerObserver); ok && (!e.Adopted || len(r.Blocks) > 0) {
		p.observePeerReserved(o, &r, replica.index)
	}
	return AppliedNow
}

// request returns the request of an event, as one of the pool.
func (e *Event) request(p *Pool) Request {
	from := &e.Request
	r := Request{
		ID: e.ID, Pool: p, LoRA: from.LoRA, Session: from.Session, HasSession: from.HasSession, Stream: from.Stream,
		Input: from.Input, Output: from.Output, TextBytes: from.TextBytes, ExactTokens: from.ExactTokens,
	}
	if from.KeyScheme != 0 && from.KeyScheme == keyScheme(p) {
		r.Blocks = from.Blocks
	}
	if p.admission.on() {
		r.Band, r.Tenant = p.admission.Index(from.Band), from.Tenant
	}
	return r
}

// renewed notes that v was last reported so long ago.
func (a *account) renewed(v *reservation, ago, now time.Duration) {
	v.lease = now + max(a.lease-ago, 0)
	a.place(v)
}

// accept books a reservation that another agent has made.
func (a *account) accept(from string, r *Request, e *Event, replica *Replica, now time.Duration) *reservation {
	v := a.add(r.ID)
	v.from = from
	if !e.Adopted {
		v.decided = replica
	}
	v.at = now - min(e.Age+e.Late, mostWait)
	v.lease = now + a.lease
	v.waited = min(e.Waited, mostWait)
	v.started = e.Started
	v.tokens = r.Input + max(r.Output, 0)
	v.input = r.Input
	v.cachedThere = e.Request.Cached
	// No prompt is cached to its last token: another replica computes this one.
	v.remote = e.Request.Cached > 0 && e.Request.Cached == r.Input
	v.leg = replica.role == RolePrefill
	v.request.keep(r)
	a.book(v, replica, now)
	return v
}

// ended ends v as another agent reports.
func (s *peers) ended(v *reservation, e *Event, now time.Duration) {
	p := s.pool
	o := Outcome{ID: e.ID, End: e.End, Status: e.Status, TTFT: e.TTFT, Redispatched: e.Redispatched}
	if o.End == Expired {
		p.caches.resetSize(v.replica)
		p.reclaims.add(reclaimed{id: v.id})
		if v.from == "" {
			p.stats.Expired++
		}
	} else if !v.started && o.computed() {
		creditFirstToken(v, now)
		begin(p, v, max(o.TTFT-v.waited, 0), now)
	}
	p.release(v, o, now)
	if e.Other && v.from == "" {
		p.report.ended(v, &o)
	}
}

// endUnlisted ends the reservations of an agent that are not in its list, which is now
// complete.
func (s *peers) endUnlisted(from string, list uint32, now time.Duration) {
	all := &s.pool.account.reservations
	for i := all.slots[0].next; i != 0; {
		v := all.at(i)
		i = v.next
		if v.from == from && v.listed != list {
			s.pool.release(v, Outcome{End: Expired}, now)
		}
	}
}

// Silent notes that an agent no longer sends anything: until it has listed its reservations
// again, they end when their replicas hold fewer requests, or with their leases.
func (d *Decider) Silent(from string) {
	for _, p := range d.Pools() {
		p.mu.Lock()
		p.peers.of(from).silent = true
		p.admission.elsewhere.drop(from, 0)
		p.mu.Unlock()
	}
}

// Forget ends the reservations of an agent that has left for good.
func (d *Decider) Forget(from string) {
	for _, p := range d.Pools() {
		p.mu.Lock()
		now := p.clock()
		p.peers.lists++
		p.peers.endUnlisted(from, p.peers.lists, now)
		p.admission.elsewhere.drop(from, 0)
		delete(p.peers.byName, from)
		p.admission.dispatch(now)
		p.mu.Unlock()
	}
}

// charge counts a request that another agent has sent against its tenant's share.
func (a *admission) charge(v *reservation, now time.Duration) {
	if !a.on() {
		return
	}
	e := queue.Entry{Band: v.request.Band, Tenant: v.request.Tenant, Prefill: float64(max(v.uncached, 0))}
	e.Work = e.Prefill + float64(max(v.request.Output, 0))
	if a.Hold {
		a.queue.Charge(e)
		return
	}
	v.start = a.proxy.Next(e, now, a.pool.load.poolSpeed(), a.pool.load.totalSpeed(&a.pool.members)).Start
}

func (s *selection) observePeerReserved(o PeerObserver, r *Request, replica int) {
	defer s.panics.recovered()
	o.ReservedByPeer(r, replica)
}
