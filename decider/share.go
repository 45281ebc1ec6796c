package decider

import (
	"time"

	"pointsman/decider/queue"
)

// EventKind says what an Event reports.
type EventKind uint8

// The kinds of events.
const (
	EventPlaced     EventKind = iota + 1 // a reservation was made
	EventConnected                       // its replica has the request
	EventFirstToken                      // the first byte of its answer has come
	EventEnded                           // it has ended
	EventListBegins                      // a list of all reservations of the pool follows,
	EventListed                          // one of them,
	EventListEnds                        // and the list is complete
	EventDigest                          // how many reservations there are on a replica
	EventHeld                            // a request is held,
	EventNotHeld                         // and is not any more; no replica has it
	EventKinds                           // how many kinds there are, and 0
)

// Event is an agent's report on one of its own reservations to the others. They apply it by
// Decider.ApplyEvent, to the account that also holds their own reservations. Only the agent
// that made a reservation reports on it, so there is no conflict to resolve. An event has
// the fields that its kind uses.
type Event struct {
	Kind    EventKind
	Pool    string
	Replica string
	ID      ID
	// Other marks a report on a reservation that another agent made, but whose proxy
	// reports to this one. Only the agent that made it acts on the report.
	Other bool

	// ByProxy marks a FirstToken that a proxy reported, not an engine's count.
	ByProxy bool

	// Placed and Listed.
	Request RequestSummary
	Adopted bool          // the proxy chose the replica by itself
	Started bool          // its first byte has come
	Waited  time.Duration // how long it was held before it was decided
	Age     time.Duration // since it was decided, or is held
	Quiet   time.Duration // since its last report; Listed

	// Held.
	Left time.Duration // until its first token is due; 0 = it has no deadline

	// Ended.
	End          End
	Status       int
	TTFT         time.Duration
	Redispatched bool

	// Digest.
	Count int
	Sum   uint64 // of hashes of the ids

	// Late is the delay of the event, as far as the receiver knows.
	Late time.Duration
}

// RequestSummary is what the others need to know of a request.
type RequestSummary struct {
	LoRA        string
	Band        string
	Tenant      uint64
	Session     uint64
	HasSession  bool
	Stream      bool
	Input       int
	Output      int // -1 = unknown
	TextBytes   int
	ExactTokens int
	// Cached is how many of the prompt tokens the replica had, as the agent that
	// decided saw it.
	Cached int
	// Blocks are comparable where KeyScheme is the same.
	Blocks    []uint64
	KeyScheme uint32
}

// Journal takes the events of a decider's own reservations. Add is called with a
// pool locked: it must not block, and must not keep e, nor e.Request.Blocks.
type Journal interface{ Add(e *Event) }

// Sharing configures how a decider shares its reservations with others.
type Sharing struct {
	Agent   string  // its name, no other's
	Journal Journal // nil = there are no others
}

// MostBlocks bounds the blocks of an event. They are the first of the prompt.
const MostBlocks = 1 << 10

// reporter reports a pool's own reservations to its journal. It lives under the
// pool's lock.
type reporter struct {
	pool    *Pool
	journal Journal // nil = nobody asks
	event   Event   // scratch
}

// keyScheme is equal for pools whose block keys are comparable; 0 = there are none.
func keyScheme(p *Pool) uint32 {
	if p.caches.model == nil {
		return 0
	}
	scheme := uint32(p.config.BlockTokens) << 1
	if p.tokens.Load() != nil {
		scheme |= 1
	}
	return scheme
}

// of begins a report on v. Reservations of another agent are reported only if the event was
// reported to this one.
func (t *reporter) of(kind EventKind, v *reservation) *Event {
	e := &t.event
	*e = Event{Kind: kind, Pool: t.pool.name, Replica: v.replica.name, ID: v.id, Other: v.from != ""}
	return e
}

// placed reports a new reservation, or one of a list.
func (t *reporter) placed(kind EventKind, v *reservation, now time.Duration) {
	if t.journal == nil {
		return
	}
	p := t.pool
	e, r := t.of(kind, v), &v.request
	e.Adopted, e.Started, e.Waited, e.Age = v.decided == nil, v.started, v.waited, now-v.at
	e.Quiet = max(now+p.account.lease-v.lease, 0)
	e.Request = RequestSummary{
		LoRA: r.LoRA, Tenant: r.Tenant, Session: r.Session, HasSession: r.HasSession, Stream: r.Stream,
		Input: r.Input, Output: r.Output, TextBytes: r.TextBytes, ExactTokens: r.ExactTokens,
		Cached: max(v.input-v.uncached, 0),
	}
	if p.admission.on() {
		e.Request.Band = p.admission.Band(r.Band).Name
	}
	if c := v.replica.cache; c != nil && c.Source() == 0 { // else its engine reports to all agents
		e.Request.KeyScheme, e.Request.Blocks = keyScheme(p), r.Blocks[:min(len(r.Blocks), MostBlocks)]
	}
	t.journal.Add(e)
}

// held reports a held request. It always includes the blocks, also if the engines report
// their caches themselves: they decide where the request should go.
func (t *reporter) held(it *queue.Item[held], now time.Duration) {
	if t.journal == nil {
		return
	}
	p, r := t.pool, it.Value.request
	it.Value.published = true
	e := &t.event
	*e = Event{Kind: EventHeld, Pool: p.name, ID: r.ID, Age: now - it.At, Request: RequestSummary{
		LoRA: r.LoRA, Band: p.admission.Band(it.Band).Name, Tenant: r.Tenant, Session: r.Session, HasSession: r.HasSession, Stream: r.Stream,
		Input: r.Input, Output: r.Output, TextBytes: r.TextBytes, ExactTokens: r.ExactTokens,
		KeyScheme: keyScheme(p), Blocks: r.Blocks[:min(len(r.Blocks), MostBlocks)],
	}}
	if it.Deadline > 0 {
		e.Left = max(it.Deadline-now, time.Millisecond)
	}
	t.journal.Add(e)
}

// notHeld reports that a request is held no more, unless it was sent.
func (t *reporter) notHeld(it *queue.Item[held]) {
	if t.journal == nil || !it.Value.published || t.pool.find(it.ID) != nil {
		return
	}
	t.event = Event{Kind: EventNotHeld, Pool: t.pool.name, ID: it.ID}
	t.journal.Add(&t.event)
}

// reached reports that the replica has the request, or has begun to answer.
func (t *reporter) reached(kind EventKind, v *reservation, byProxy bool) {
	if t.journal == nil {
		return
	}
	e := t.of(kind, v)
	e.ByProxy = byProxy
	t.journal.Add(e)
}

// ended reports the end of v, which was reported here.
func (t *reporter) ended(v *reservation, o *Outcome) {
	if t.journal == nil {
		return
	}
	e := t.of(EventEnded, v)
	e.End, e.Status, e.TTFT, e.Redispatched = o.End, o.Status, o.TTFT, o.Redispatched
	t.journal.Add(e)
}

// doubted reports the end of a request whose reservation the leading agent has taken for
// lost.
func (t *reporter) doubted(id ID, replica string) {
	if t.journal != nil {
		t.event = Event{Kind: EventEnded, Pool: t.pool.name, Replica: replica, ID: id}
		t.journal.Add(&t.event)
	}
}

// PublishAll adds a list of all reservations of this agent to the journal, pool by pool,
// for agents that have missed some of its events.
func (d *Decider) PublishAll() {
	for _, p := range d.Pools() {
		p.mu.Lock()
		p.report.all(p.clock())
		p.mu.Unlock()
	}
}

func (t *reporter) all(now time.Duration) {
	if t.journal == nil {
		return
	}
	t.journal.Add(&Event{Kind: EventListBegins, Pool: t.pool.name})
	s := &t.pool.account.reservations
	for i := s.slots[0].next; i != 0; i = s.at(i).next {
		if v := s.at(i); v.from == "" {
			t.placed(EventListed, v, now)
		}
	}
	if a := &t.pool.admission; a.holds() {
		for it := range a.queue.Due() {
			if it.Value.elsewhere == nil {
				t.held(it, now)
			}
		}
	}
	t.journal.Add(&Event{Kind: EventListEnds, Pool: t.pool.name})
}

// PublishDigests adds a digest of this agent's reservations to the journal. The others
// compare it with what they know.
func (d *Decider) PublishDigests() {
	for _, p := range d.Pools() {
		p.mu.Lock()
		p.report.digests()
		p.mu.Unlock()
	}
}

func (t *reporter) digests() {
	if t.journal == nil {
		return
	}
	setDigests(t.pool, "")
	for _, r := range t.pool.replicas {
		t.event = Event{Kind: EventDigest, Pool: t.pool.name, Replica: r.name, Count: r.digest.count, Sum: r.digest.sum}
		t.journal.Add(&t.event)
	}
}

// digest is a count of reservations and a sum of hashes of their ids.
type digest struct {
	count int
	sum   uint64
}

// setDigests computes the digest of each replica from the reservations that from has made.
func setDigests(p *Pool, from string) {
	for _, r := range p.replicas {
		r.digest = digest{}
	}
	s := &p.account.reservations
	for i := s.slots[0].next; i != 0; i = s.at(i).next {
		if v := s.at(i); v.from == from {
			v.replica.digest.count++
			v.replica.digest.sum += v.id.Hash()
		}
	}
}
