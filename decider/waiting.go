package decider

import (
	"math"
	"time"
)

// Waiter is told that the decision on a request that was held has been made:
// the pool has filled the Decision given to Submit, and will touch neither
// that nor the Request any more. Bound is called with the pool locked: it must
// not block, nor call the pool.
type Waiter interface{ Bound() }

// held is a request that waits.
type held struct {
	request  *Request
	decision *Decision
	waiter   Waiter // nil until Submit has returned
	tenant   *tenant
	band     int
	at       time.Duration
	seq      uint64
	key      float64 // in its tenant's list
	due      float64 // seconds, when it is refused
	prefill  float64 // prompt tokens that are cached nowhere
	work     float64 // these and the output: what its tenant is charged
	late     bool    // due is its deadline's, not its band's TTL
}

// tenant is one tenant's requests in a band. Tenants take turns by their start
// tags: the work that each has had, by its weight, on a scale on which a tenant
// that was away starts where the others are (start-time fair queueing).
type tenant struct {
	id     uint64
	class  int
	weight float64
	start  float64
	list   ordered[*held]
}

// bandQueue is what waits in a band, and what it has had.
type bandQueue struct {
	tenants map[uint64]*tenant // those that wait, and those ahead of tag
	backlog ordered[*tenant]   // those that wait, by start
	tag     float64            // start of the tenant last served
	start   float64            // the band's own, among those with a weight
	n       int
	bytes   int
	work    float64
	load    rate // prefill work that came, admitted or not
	counts  []bandCount
	placed  int // proxy's queues: requests sent and not ended
}

// tenantsKept bounds how many tenants without a waiting request are remembered.
const tenantsKept = 1024

// queue is all that waits for a pool's replicas.
type queue struct {
	*admission
	bands   []bandQueue
	visit   []int // scratch: places of bands in the order of their turn
	byID    map[ID]*held
	due     ordered[*held]
	free    []*held
	seq     uint64
	tag     float64       // start of the weighted band last served
	ended   rate          // of requests
	drain   rateEstimator // work that left, while others waited
	drained time.Duration
	mask    []bool // by replica index, when masked: those that may be chosen now
	masked  bool
	room    []bool // by replica index: those that have room
	some    []int  // scratch: candidates that mask leaves
}

func newQueue(a *admission) *queue {
	q := &queue{admission: a, bands: make([]bandQueue, len(a.Bands)), byID: map[ID]*held{}}
	for i := range q.bands {
		q.bands[i].tenants = map[uint64]*tenant{}
		q.bands[i].counts = make([]bandCount, len(a.names))
	}
	return q
}

// add puts h, whose request, band and work are set, into the queue.
func (q *queue) add(h *held, now time.Duration, speed float64) {
	r := h.request
	b := &q.bands[h.band]
	q.seq++
	h.seq = q.seq
	h.tenant = b.tenant(q, r.Tenant)
	h.key = h.at.Seconds()
	switch q.Bands[h.band].Order {
	case ByDeadline:
		h.key = math.MaxFloat64
		if r.Deadline > 0 {
			h.key = r.Deadline.Seconds()
		}
	case LeastWorkLeft:
		// All age at the same rate, so their order does not change with time.
		h.key += h.prefill / (ageing * speed)
	}
	h.due, h.late = (h.at + q.Bands[h.band].TTL).Seconds(), false
	if r.Deadline > 0 {
		// After this, not even the fastest start would make it.
		if last := r.Deadline.Seconds() - h.prefill/speed; last < h.due {
			h.due, h.late = last, true
		}
	}
	t := h.tenant
	if t.list.len() == 0 {
		t.start = max(t.start, b.tag)
		b.backlog.insert(t.start, t.id, t)
	}
	t.list.insert(h.key, h.seq, h)
	q.due.insert(h.due, h.seq, h)
	if len(q.byID) == 0 {
		q.drained = now
	}
	q.byID[r.ID] = h
	if b.n == 0 {
		b.start = max(b.start, q.tag)
	}
	b.n++
	b.bytes += r.Bytes
	b.work += h.work
}

// remove takes h out.
func (q *queue) remove(h *held) {
	b, t := &q.bands[h.band], h.tenant
	t.list.remove(h.key, h.seq)
	if t.list.len() == 0 {
		b.backlog.remove(t.start, t.id)
		b.forget(t)
	}
	q.due.remove(h.due, h.seq)
	delete(q.byID, h.request.ID)
	b.n--
	b.bytes -= h.request.Bytes
	b.work -= h.work
	if b.n == 0 {
		b.work = 0 // no rounding error stays
	}
}

// recycle makes h, which was removed, the next one to be used.
func (q *queue) recycle(h *held) {
	*h = held{}
	q.free = append(q.free, h)
}

func (q *queue) newHeld() *held {
	if n := len(q.free); n > 0 {
		h := q.free[n-1]
		q.free = q.free[:n-1]
		return h
	}
	return new(held)
}

// charge notes that h, which waits yet, is served.
func (q *queue) charge(h *held) {
	b, t := &q.bands[h.band], h.tenant
	b.tag = max(b.tag, t.start)
	b.backlog.remove(t.start, t.id)
	t.start += h.work / t.weight
	b.backlog.insert(t.start, t.id, t)
	if w := q.Bands[h.band].Weight; w > 0 {
		q.tag = max(q.tag, b.start)
		b.start += h.work / float64(w)
	}
}

// tenant is the tenant of that id, made if need be.
func (b *bandQueue) tenant(q *queue, id uint64) *tenant {
	t := b.tenants[id]
	if t == nil {
		class := q.class(id)
		t = &tenant{id: id, class: class, weight: q.weights[class]}
		b.tenants[id] = t
	}
	return t
}

// forget drops a tenant that does not wait, unless it has had more than others
// and that is worth remembering.
func (b *bandQueue) forget(t *tenant) {
	if t.start <= b.tag {
		delete(b.tenants, t.id)
	}
	if len(b.tenants) <= tenantsKept+b.backlog.len() {
		return
	}
	for id, t := range b.tenants {
		if t.list.len() == 0 {
			delete(b.tenants, id)
		}
	}
}

// turns are the places of the bands in which something waits, in their turn:
// strict ones in order, then those with weights by what they have had.
func (q *queue) turns() []int {
	q.visit = q.visit[:0]
	for i := range q.bands {
		if q.bands[i].n > 0 && q.Bands[i].Weight == 0 {
			q.visit = append(q.visit, i)
		}
	}
	strict := len(q.visit)
	for i := range q.bands {
		if q.bands[i].n == 0 || q.Bands[i].Weight == 0 {
			continue
		}
		q.visit = append(q.visit, i)
		for k := len(q.visit) - 1; k > strict && q.bands[q.visit[k]].start < q.bands[q.visit[k-1]].start; k-- {
			q.visit[k], q.visit[k-1] = q.visit[k-1], q.visit[k]
		}
	}
	return q.visit
}

// head is the request that is first in line; there must be one.
func (q *queue) head() *held {
	return q.bands[q.turns()[0]].backlog.first().value.list.first().value
}

// ahead is the work that goes before a request of that band which comes now.
func (q *queue) ahead(band int) (work float64) {
	for i := range q.bands {
		if i <= band && q.Bands[i].Weight == 0 || q.Bands[band].Weight > 0 {
			work += q.bands[i].work
		}
	}
	return work
}

// rate is an amount per second, of about the last minute.
type rate struct {
	sum   float64
	since time.Duration // when the first of it came
	at    time.Duration // when the last of it did
	some  bool
}

const rateMemory = 60 // seconds

func (r *rate) add(x float64, now time.Duration) {
	if !r.some {
		r.some, r.since = true, now
	}
	r.sum = r.sum*r.kept(now) + x
	r.at = now
}

// perSecond makes up for a past that is shorter than the memory.
func (r *rate) perSecond(now time.Duration) float64 {
	if !r.some {
		return 0
	}
	past := 1 - math.Exp(-max((now-r.since).Seconds(), 1)/rateMemory)
	return r.sum * r.kept(now) / (rateMemory * past)
}

func (r *rate) kept(now time.Duration) float64 { return math.Exp(-(now - r.at).Seconds() / rateMemory) }
