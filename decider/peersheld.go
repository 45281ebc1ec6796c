package decider

import (
	"slices"
	"time"

	"pointsman/decider/queue"
)

const (
	// MostPeerHeld bounds the requests that other agents hold, and that this one
	// knows of, in a pool,
	MostPeerHeld = 1 << 14
	// and mostPeerHeldBlocks the blocks of their prompts, 16 MiB.
	mostPeerHeldBlocks = 2 << 20
	// patience is how long a replica is left to a request that another agent holds,
	// beyond what its messages need,
	patience = 30 * time.Millisecond
	// mostLate the longest time that they are assumed to need,
	mostLate = 50 * time.Millisecond
	// and passedFor how long the request is passed over if its agent has not sent it.
	passedFor = time.Second
	// leftApart is when a replica left to a request was not left without a break.
	leftApart = 60 * time.Millisecond
)

// elsewhere is what an admission knows of a request that another agent holds. That agent
// sends it. For a while, this one leaves it the replica that it should go to: all agents
// know the same queue, and so agree on who is next.
type elsewhere struct {
	from   string
	listed uint32 // the list that had it last

	since, until time.Duration // when a replica was left to it without a break
	doubted      time.Duration // it is passed over until then
	turn         uint64        // the call of dispatch that has left it a replica
}

// left is the room on a replica that is left to requests of other agents.
type left struct {
	requests int
	cost     float64 // of prefill
}

// holdsElsewhere is what an admission knows of the requests that others hold.
type holdsElsewhere struct {
	pool   *Pool
	left   []left // by replica index, within a call of dispatch
	turn   uint64 // counts calls of dispatch
	n      int    // requests,
	blocks int    // and blocks of theirs
}

// leftOn is the room on a replica that is left to others.
func (h *holdsElsewhere) leftOn(i int) left {
	if i < 0 || i >= len(h.left) {
		return left{}
	}
	return h.left[i]
}

// begin begins a call of dispatch, or ends it.
func (h *holdsElsewhere) begin(replicas int) {
	h.turn++
	h.left = h.left[:0]
	if h.n > 0 {
		h.left = slices.Grow(h.left, replicas)[:replicas]
		clear(h.left)
	}
}

// passes reports whether an item is passed over in this call of dispatch.
func (h *holdsElsewhere) passes(it *queue.Item[held], now time.Duration) bool {
	x := it.Value.elsewhere
	return x != nil && (x.turn == h.turn || now < x.doubted || h.pool.peers.doubts(x.from))
}

// leave leaves the first replica of the pool's order to a request that another agent holds
// and is about to send there. If that agent takes too long, the request is passed over.
func (h *holdsElsewhere) leave(it *queue.Item[held], now time.Duration) {
	p, x := h.pool, it.Value.elsewhere
	x.turn = h.turn
	if now-x.until > leftApart {
		x.since = now
	}
	x.until = now
	peer := p.peers.of(x.from)
	if now-x.since > patience+3*min(peer.late, mostLate) {
		x.doubted, x.since = now+passedFor, now
		peer.doubted = max(now, 1)
		return
	}
	if len(p.order) == 0 {
		return
	}
	if best := p.order[0]; best < len(h.left) {
		l := &h.left[best]
		l.requests++
		l.cost += p.view.PrefillCost(best)
	}
}

// doubts reports whether an agent failed to use a replica that was left to it, and has sent
// nothing since.
func (s *peers) doubts(from string) bool {
	x := s.byName[from]
	return x == nil || x.silent || x.doubted > 0 && x.at <= x.doubted
}

// firstOwn is the item that is first in line, if this agent holds it, or else that
// of its own which is due first; nil if it holds none.
func (h *holdsElsewhere) firstOwn() *queue.Item[held] {
	q := h.pool.admission.queue
	if it := q.Head(); it.Value.elsewhere == nil {
		return it
	}
	for it := range q.Due() {
		if it.Value.elsewhere == nil {
			return it
		}
	}
	return nil
}

// heldElsewhere notes a request that another agent holds.
func (s *peers) heldElsewhere(from string, x *peer, e *Event, now time.Duration) Applied {
	p := s.pool
	a := &p.admission
	if !a.holds() || a.draining || p.find(e.ID) != nil {
		return AppliedBefore
	}
	if it := a.queue.Find(e.ID); it != nil {
		if h := it.Value.elsewhere; h != nil && h.from == from {
			h.listed = x.list
		}
		return AppliedBefore
	}
	if a.elsewhere.n >= MostPeerHeld {
		return OutOfBounds
	}
	r := new(e.request(p))
	if a.elsewhere.blocks+len(r.Blocks) > mostPeerHeldBlocks {
		r.Blocks = nil
	}
	r.Blocks = slices.Clone(r.Blocks)
	prefill, _ := prospectsWhole(p, r, now)
	entry := queue.Entry{ID: r.ID, Band: r.Band, Tenant: r.Tenant, Prefill: prefill, Work: prefill + float64(max(r.Output, 0))}
	if e.Left > 0 {
		entry.Deadline = now + e.Left
		r.Deadline = entry.Deadline
	}
	if a.queue.Len() == 0 {
		a.departed = now
	}
	a.queue.Add(entry, held{request: r, elsewhere: &elsewhere{from: from, listed: x.list}}, now-min(e.Age+e.Late, mostWait), p.load.poolSpeed())
	a.elsewhere.n++
	a.elsewhere.blocks += len(r.Blocks)
	countHeld(p, r, prefill, now)
	return AppliedNow
}

// forget drops a request that another agent no longer holds.
func (h *holdsElsewhere) forget(it *queue.Item[held]) {
	q := h.pool.admission.queue
	h.n--
	h.blocks -= len(it.Value.request.Blocks)
	q.Remove(it)
	q.Recycle(it)
}

// notHeldElsewhere drops the request of that id if the agent has held it.
func (s *peers) notHeldElsewhere(from string, e *Event) Applied {
	a := &s.pool.admission
	if a.on() {
		if it := a.queue.Find(e.ID); it != nil && it.Value.elsewhere != nil && it.Value.elsewhere.from == from {
			a.elsewhere.forget(it)
			return AppliedNow
		}
	}
	return AppliedBefore
}

// markCounted marks in r what was counted of it when another agent held it.
func (h *holdsElsewhere) markCounted(r *Request) {
	if h.n == 0 {
		return
	}
	if it := h.pool.admission.queue.Find(r.ID); it != nil && it.Value.elsewhere != nil {
		r.countedAs(it.Value.request)
	}
}

// sent charges a request that another agent has sent against its tenant's
// share, as one that it has held if it is known as that.
func (h *holdsElsewhere) sent(v *reservation, now time.Duration) {
	a := &h.pool.admission
	if !a.on() {
		return
	}
	it := a.queue.Find(v.id)
	if it == nil || it.Value.elsewhere == nil {
		a.charge(v, now)
		return
	}
	h.n--
	h.blocks -= len(it.Value.request.Blocks)
	leaves(a, it, now)
	a.queue.Recycle(it)
}

// drop drops the held requests of an agent that are not in its list, which is now complete;
// all of them if there is no list.
func (h *holdsElsewhere) drop(from string, list uint32) {
	if h.n == 0 {
		return
	}
	var gone []*queue.Item[held]
	for it := range h.pool.admission.queue.Due() {
		if x := it.Value.elsewhere; x != nil && x.from == from && (list == 0 || x.listed != list) {
			gone = append(gone, it)
		}
	}
	for _, it := range gone {
		h.forget(it)
	}
}
