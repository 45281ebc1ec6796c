package queue

// Turns returns the indexes of the bands with waiting items, in the order of their turns:
// strict bands in their order, then those with weights by the work that they have had. The
// result is valid until the next call of Turns or Head.
func (q *Queue[T]) Turns() []int {
	q.turns = q.turns[:0]
	for i := range q.bands {
		if q.bands[i].n > 0 && !q.weighted(i) {
			q.turns = append(q.turns, i)
		}
	}
	strict := len(q.turns)
	for i := range q.bands {
		if q.bands[i].n == 0 || !q.weighted(i) {
			continue
		}
		q.turns = append(q.turns, i)
		for k := len(q.turns) - 1; k > strict && q.bands[q.turns[k]].start < q.bands[q.turns[k-1]].start; k-- {
			q.turns[k], q.turns[k-1] = q.turns[k-1], q.turns[k]
		}
	}
	return q.turns
}

// Tenants is the number of tenants that wait in a band.
func (q *Queue[T]) Tenants(band int) int { return q.bands[band].backlog.len() }

// Tenant returns the tenant with turn i in the band.
func (q *Queue[T]) Tenant(band, i int) *Tenant[T] { return q.bands[band].backlog.at(i) }

// Head is the item that is first in line. There must be one.
func (q *Queue[T]) Head() *Item[T] { return q.Tenant(q.Turns()[0], 0).Item(0) }

// WorkAhead is the work ahead of a new request of that band.
func (q *Queue[T]) WorkAhead(band int) (work float64) {
	for i := range q.bands {
		if i <= band && !q.weighted(i) || q.weighted(band) {
			work += q.bands[i].work
		}
	}
	return work
}

// Ahead is the number of items of that band and of those before it.
func (q *Queue[T]) Ahead(band int) (n int) {
	for i := range q.bands[:band+1] {
		n += q.bands[i].n
	}
	return n
}

// Charge notes that a request of that band and tenant was served elsewhere, which
// counts towards their shares.
func (q *Queue[T]) Charge(e Entry) {
	b := &q.bands[e.Band]
	t := q.tenant(b, e.Tenant)
	if waits := t.items.len() > 0; waits {
		b.backlog.remove(t.start, t.id)
		defer func() { b.backlog.insert(t.start, t.id, t) }()
	}
	t.start = max(t.start, b.tag)
	// It had its turn there. That must not give it a turn here before those that wait.
	turn := t.start
	if b.backlog.len() > 0 {
		turn = min(turn, b.backlog.at(0).start)
	}
	b.tag = max(b.tag, turn)
	t.start += e.Work / t.weight
	if w := q.Settings.bands[e.Band].Weight; w > 0 {
		if b.n == 0 {
			b.start = max(b.start, q.tag)
		}
		b.start += e.Work / float64(w)
	}
	if t.items.len() == 0 {
		b.forget(t)
	}
}
