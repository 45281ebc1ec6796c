package decider

import (
	"time"

	"pointsman/decider/kvcache"
)

// reservation is what a decision holds until its outcome: one request's share
// of a replica's load. It ends with its outcome or, if the feed loses that, with
// its lease.
type reservation struct {
	id          ID
	from        string // the agent that made it; "" = this one
	listed      uint32 // the last list of that agent that had it
	restored    bool   // from an earlier life; it may have ended meanwhile
	replica     *Replica
	decided     *Replica // nil = the proxy chose by itself
	lease       time.Duration
	at          time.Duration
	tokens      int                 // prompt and expected output
	input       int                 // of these, prompt
	uncached    int                 // of these, to be computed, as it was booked
	cachedThere int                 // of these, on the replica, as reported by the agent that made it
	slow        [kvcache.Slower]int // prompt tokens on slower tiers there, as it was booked
	started     bool                // the first byte has come
	prefill     prefill
	waited      time.Duration  // how long it was held before it was decided
	start       float64        // its tenant's start tag, where the proxy queues
	cache       *kvcache.Cache // counts the request's blocks; nil = none does
	pinned      bool           // they are pinned there
	unkeyed     int            // blocks pinned besides
	seen        int            // of the request's blocks, those that were not made up
	ttft        time.Duration  // from when it came; 0 = not known
	unguided    bool           // the proxy chose by itself, but the request is known
	remote      bool           // its prompt is computed by another replica,
	via         *Replica       // this one; nil = another agent knows
	missing     int            // of its prompt tokens, those that are fetched from there
	computed    time.Duration  // when they were computed; 0 = not known
	leg         bool           // it is a leg, on the replica that computes the prompt
	request     Request
	next, prev  int32
}

// reservations is a slab of reservations, found by id and listed in the order in
// which their leases end. Slots are reused, with the slices that they hold. It
// lives under the pool's lock.
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

// add returns a new reservation for id, last in the list. Its fields are empty,
// but for request. The pointer is valid until the next add.
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
	v.reset(id)
	s.link(i)
	return v
}

// older reports whether r has a request besides v that was decided before began.
func (s *reservations) older(r *Replica, v *reservation, began time.Duration) bool {
	for i := s.slots[0].next; i != 0; i = s.slots[i].next {
		if o := &s.slots[i]; o != v && o.replica == r && o.at < began {
			return true
		}
	}
	return false
}

// at is the reservation in slot i.
func (s *reservations) at(i int32) *reservation { return &s.slots[i] }

// reset clears v except for its request, which keep replaces, and its neighbours.
func (v *reservation) reset(id ID) {
	v.id, v.from, v.listed, v.restored = id, "", 0, false
	v.replica, v.decided, v.cache = nil, nil, nil
	v.lease, v.at, v.waited, v.ttft, v.start = 0, 0, 0, 0, 0
	v.tokens, v.input, v.unkeyed, v.seen = 0, 0, 0, 0
	v.uncached, v.cachedThere, v.missing, v.computed = 0, 0, 0, 0
	v.remote, v.via, v.leg = false, nil, false
	v.slow = [kvcache.Slower]int{}
	v.started, v.pinned, v.unguided = false, false, false
	v.prefill = prefill{}
}

// isKnown reports whether this agent was asked about the request of v.
func (v *reservation) isKnown() bool { return v.from == "" && (v.decided != nil || v.unguided) }

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

// place moves v, whose lease is set, to its position in the list, which is sorted by the
// ends of leases.
func (s *reservations) place(v *reservation) {
	i := s.index(v)
	s.unlink(v)
	after := s.slots[0].prev
	for after != 0 && s.slots[after].lease > v.lease {
		after = s.slots[after].prev
	}
	v.prev, v.next = after, s.slots[after].next
	s.slots[v.next].prev = i
	s.slots[after].next = i
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

// keep copies what an Observer may read later on.
func (r *Request) keep(from *Request) {
	blocks, text := append(r.Blocks[:0], from.Blocks...), append(r.TextBlocks[:0], from.TextBlocks...)
	*r = *from
	r.Blocks, r.TextBlocks, r.Prompt = blocks, text, nil
}
