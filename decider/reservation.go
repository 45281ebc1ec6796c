package decider

import (
	"time"

	"pointsman/decider/kvcache"
)

// reservation is what a decision holds until its outcome: one request's share
// of a replica's load. It ends by its outcome or, when the feed loses that, by
// its lease.
type reservation struct {
	id         ID
	replica    *Replica
	decided    *Replica // nil when the proxy went ahead without a decision
	lease      time.Duration
	at         time.Duration
	tokens     int  // prompt and expected output
	input      int  // of these, prompt
	started    bool // the first byte has come
	prefill    prefill
	waited     time.Duration  // it was held so long before it was decided
	start      float64        // its tenant's start tag, where the proxy queues
	cache      *kvcache.Cache // counts the request's blocks; nil = none does
	pinned     bool           // they are pinned there
	unkeyed    int            // blocks pinned besides
	request    Request
	next, prev int32
}

// reservations is a slab of reservations, found by id, in the order in which
// their leases end. The slots are reused, with the slices they hold.
type reservations struct {
	slots []reservation // slot 0 is the head of the list
	byID  map[ID]int32
	free  []int32
}

func newReservations() reservations {
	return reservations{slots: make([]reservation, 1), byID: map[ID]int32{}}
}

func (s *reservations) find(id ID) *reservation {
	if i, ok := s.byID[id]; ok {
		return &s.slots[i]
	}
	return nil
}

// add returns a new reservation for id, last in the list. The pointer is
// valid until the next add.
func (s *reservations) add(id ID) *reservation {
	var i int32
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else {
		i = int32(len(s.slots))
		s.slots = append(s.slots, reservation{})
	}
	s.byID[id] = i
	v := &s.slots[i]
	v.id = id
	s.link(i)
	return v
}

// index is the slot of v.
func (s *reservations) index(v *reservation) int32 { return s.slots[v.prev].next }

// touch moves v to the end of the list.
func (s *reservations) touch(v *reservation) {
	i := s.index(v)
	s.unlink(v)
	s.link(i)
}

func (s *reservations) link(i int32) {
	head, v := &s.slots[0], &s.slots[i]
	v.prev, v.next = head.prev, 0
	s.slots[head.prev].next = i
	head.prev = i
}

func (s *reservations) unlink(v *reservation) {
	s.slots[v.prev].next = v.next
	s.slots[v.next].prev = v.prev
}

// remove frees v. Its contents stay until the slot is used again.
func (s *reservations) remove(v *reservation) {
	i := s.index(v)
	s.unlink(v)
	delete(s.byID, v.id)
	s.free = append(s.free, i)
}

// oldest is the reservation whose lease ends first, or nil.
func (s *reservations) oldest() *reservation {
	if i := s.slots[0].next; i != 0 {
		return &s.slots[i]
	}
	return nil
}

func (s *reservations) len() int { return len(s.byID) }

// reserve books r on replica. The caller holds the lock.
func (p *Pool) reserve(r *Request, replica *Replica, now time.Duration) {
	if v := p.reservations.find(r.ID); v != nil {
		// The proxy asks again for a request it could not place: what was
		// reserved for the first answer ends here.
		p.stats.Replaced++
		p.release(v, Outcome{End: Refused}, now)
	}
	v := p.reservations.add(r.ID)
	v.decided = replica
	v.at = now
	v.lease = now + p.config.Lease
	v.started = false
	v.waited, v.start = 0, 0
	v.tokens = r.Input + max(r.Output, 0)
	v.input = r.Input
	v.request.keep(r)
	p.book(v, replica, now)
	p.admission.sent(v, 1)
}

// keep copies what a Policy may want to know of a request later on.
func (r *Request) keep(from *Request) {
	blocks := append(r.Blocks[:0], from.Blocks...)
	*r = *from
	r.Blocks, r.body = blocks, nil
}

// book counts v on replica, which the request goes to.
func (p *Pool) book(v *reservation, replica *Replica, now time.Duration) {
	v.replica = replica
	replica.taken.add(now)
	p.sessions.put(&v.request, replica)
	if v.request.LoRA != "" {
		replica.adapters.take(v.request.LoRA)
		if v.started {
			replica.adapters.started(v.request.LoRA)
		}
	}
	replica.inFlight++
	replica.tokens += v.tokens
	replica.input += v.input
	if !v.started {
		replica.waiting++
	}
	p.load.enqueue(v, v.input-p.cached(v), now)
	p.reserveBlocks(v, now)
}

// unbook takes v off its replica.
func (p *Pool) unbook(v *reservation, now time.Duration) {
	p.load.dequeue(v, now)
	v.releaseBlocks()
	v.replica.inFlight--
	v.replica.tokens -= v.tokens
	v.replica.input -= v.input
	if !v.started {
		v.replica.waiting--
	}
	if v.request.LoRA != "" {
		v.replica.adapters.drop(v.request.LoRA)
	}
}

// move books v on the replica that really serves it.
func (p *Pool) move(v *reservation, replica *Replica, now time.Duration) {
	p.unbook(v, now)
	p.book(v, replica, now)
	p.stats.Mismatches++
}

// release ends v. The caller holds the lock.
func (p *Pool) release(v *reservation, o Outcome, now time.Duration) {
	p.load.ended(v, o)
	p.unbook(v, now)
	p.admission.ended(v, now)
	if p.observer != nil && v.replica.index >= 0 {
		p.observer.Finished(&v.request, v.replica.index, o)
	}
	p.reservations.remove(v)
}

// sweep ends the reservations whose lease has passed.
func (p *Pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for v := p.reservations.oldest(); v != nil && v.lease <= now; v = p.reservations.oldest() {
		p.expire(v, now)
	}
	p.admission.dispatch(now)
}

// expire ends v, whose outcome is not told.
func (p *Pool) expire(v *reservation, now time.Duration) {
	p.stats.Expired++
	p.resetCacheSize(v.replica)
	p.release(v, Outcome{End: Expired}, now)
}
