package queue

import (
	"iter"
	"math"
	"time"
)

// Queue holds the requests that wait for the replicas of a pool, with values of type T.
type Queue[T any] struct {
	*Settings
	bands []band[T]
	byID  map[[16]byte]*Item[T]
	due   ordered[*Item[T]]
	turns []int // scratch of Turns
	free  []*Item[T]
	seq   uint64
	tag   float64 // start tag of the weighted band last served
}

// band holds the waiting items of a band.
type band[T any] struct {
	tenants map[uint64]*Tenant[T] // those with items, and those ahead of tag
	backlog ordered[*Tenant[T]]   // those with items, by start tag
	tag     float64               // start tag of the tenant last served
	start   float64               // the band's own start tag, among those with a weight
	n       int
	bytes   int
	work    float64
}

// New returns an empty queue.
func New[T any](s *Settings) *Queue[T] {
	q := &Queue[T]{Settings: s, bands: make([]band[T], s.Len()), byID: map[[16]byte]*Item[T]{}}
	for i := range q.bands {
		q.bands[i].tenants = map[uint64]*Tenant[T]{}
	}
	return q
}

// Len is the number of items.
func (q *Queue[T]) Len() int { return len(q.byID) }

// Find is the item of that id, or nil.
func (q *Queue[T]) Find(id [16]byte) *Item[T] { return q.byID[id] }

// Add puts an item into the queue. No item with its id may be there. speed is
// the prefill speed of a replica in tokens/s.
func (q *Queue[T]) Add(e Entry, v T, now time.Duration, speed float64) *Item[T] {
	it := q.newItem()
	it.Entry, it.Value, it.At = e, v, now
	q.insert(it, speed)
	return it
}

func (q *Queue[T]) insert(it *Item[T], speed float64) {
	b, c := &q.bands[it.Band], &q.Settings.bands[it.Band]
	q.seq++
	it.seq = q.seq
	it.tenant = q.tenant(b, it.Tenant)
	it.key = it.At.Seconds()
	switch c.Order {
	case ByDeadline:
		it.key = math.MaxFloat64
		if it.Deadline > 0 {
			it.key = it.Deadline.Seconds()
		}
	case ByWork:
		// All age at the same rate, so their order does not change with time.
		it.key += it.Prefill / (ageing * speed)
	}
	it.due, it.late = (it.At + c.TTL).Seconds(), false
	if it.Deadline > 0 {
		// After this, even a replica that starts at once is too late.
		if last := it.Deadline.Seconds() - it.Prefill/speed; last < it.due {
			it.due, it.late = last, true
		}
	}
	it.due += it.postponed
	t := it.tenant
	if t.items.len() == 0 {
		t.start = max(t.start, b.tag)
		b.backlog.insert(t.start, t.id, t)
	}
	t.items.insert(it.key, it.seq, it)
	q.due.insert(it.due, it.seq, it)
	q.byID[it.ID] = it
	if b.n == 0 {
		b.start = max(b.start, q.tag)
	}
	b.n++
	b.bytes += it.Bytes
	b.work += it.Work
}

// Remove takes an item out. It stays valid until Recycle.
func (q *Queue[T]) Remove(it *Item[T]) {
	b, t := &q.bands[it.Band], it.tenant
	t.items.remove(it.key, it.seq)
	if t.items.len() == 0 {
		b.backlog.remove(t.start, t.id)
		b.forget(t)
	}
	q.due.remove(it.due, it.seq)
	delete(q.byID, it.ID)
	b.n--
	b.bytes -= it.Bytes
	b.work -= it.Work
	if b.n == 0 {
		b.work = 0 // no rounding error stays
	}
}

// Recycle hands back an item that was removed, for a later Add.
func (q *Queue[T]) Recycle(it *Item[T]) {
	*it = Item[T]{}
	q.free = append(q.free, it)
}

func (q *Queue[T]) newItem() *Item[T] {
	if n := len(q.free); n > 0 {
		it := q.free[n-1]
		q.free = q.free[:n-1]
		return it
	}
	return new(Item[T])
}

// Serve charges an item to its tenant and its band, and removes it.
func (q *Queue[T]) Serve(it *Item[T]) {
	b, t := &q.bands[it.Band], it.tenant
	b.tag = max(b.tag, t.start)
	b.backlog.remove(t.start, t.id)
	t.start += it.Work / t.weight
	b.backlog.insert(t.start, t.id, t)
	if w := q.Settings.bands[it.Band].Weight; w > 0 {
		q.tag = max(q.tag, b.start)
		b.start += it.Work / float64(w)
	}
	q.Remove(it)
}

// tenant is the tenant of that id, created if need be.
func (q *Queue[T]) tenant(b *band[T], id uint64) *Tenant[T] {
	t := b.tenants[id]
	if t == nil {
		t = &Tenant[T]{flow: q.newFlow(id)}
		b.tenants[id] = t
	}
	return t
}

// forget drops a tenant without items, unless it has had more than the others.
func (b *band[T]) forget(t *Tenant[T]) {
	if t.start <= b.tag {
		delete(b.tenants, t.id)
	}
	if len(b.tenants) <= tenantsKept+b.backlog.len() {
		return
	}
	for id, t := range b.tenants {
		if t.items.len() == 0 {
			delete(b.tenants, id)
		}
	}
}

// Full reports whether the band holds more than its limits allow.
func (q *Queue[T]) Full(band int) bool {
	b, c := &q.bands[band], &q.Settings.bands[band]
	return b.n > c.MaxRequests || c.MaxBytes > 0 && b.bytes > c.MaxBytes
}

// Overdue is the item that has been due for the longest at now, or nil.
func (q *Queue[T]) Overdue(now time.Duration) *Item[T] {
	if it := q.First(); it != nil && it.due <= now.Seconds() {
		return it
	}
	return nil
}

// Postpone delays when an item is due. Its place does not change.
func (q *Queue[T]) Postpone(it *Item[T], by time.Duration) {
	q.due.remove(it.due, it.seq)
	it.due += by.Seconds()
	it.postponed += by.Seconds()
	q.due.insert(it.due, it.seq, it)
}

// First is the item that is due first, or nil.
func (q *Queue[T]) First() *Item[T] {
	if q.due.len() == 0 {
		return nil
	}
	return q.due.at(0)
}

// Due yields all items, those first that are due first. The queue must not change
// meanwhile.
func (q *Queue[T]) Due() iter.Seq[*Item[T]] {
	return func(yield func(*Item[T]) bool) {
		for i := range q.due.len() {
			if !yield(q.due.at(i)) {
				return
			}
		}
	}
}

// Adopt moves all items of old into q, each to the band of the same name or to
// the last one, and calls moved with each.
func (q *Queue[T]) Adopt(old *Queue[T], speed float64, moved func(*Item[T])) {
	for it := old.First(); it != nil; it = old.First() {
		name := old.Band(it.Band).Name
		old.Remove(it)
		it.Band = q.Index(name)
		q.insert(it, speed)
		moved(it)
	}
}
