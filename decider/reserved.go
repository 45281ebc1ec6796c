package decider

import "time"

// mask is the set of replicas that the item under consideration may be assigned
// to. It lives under the pool's lock.
type mask struct {
	on      bool
	allowed []bool // by replica index, when on
	scratch []int  // of filter
}

// filter returns the candidates that are allowed.
func (m *mask) filter(candidates []int) []int {
	if !m.on {
		return candidates
	}
	m.scratch = m.scratch[:0]
	for _, i := range candidates {
		if m.allowed[i] {
			m.scratch = append(m.scratch, i)
		}
	}
	return m.scratch
}

// reservedUse is the share of their time that replicas reserved for urgent
// requests are meant to be busy.
const reservedUse = 0.4

// restrict sets which replicas a request of that band may be assigned to. With FIFO, these
// are those with capacity. For a band after others, long prompts must also leave enough
// replicas free for requests of the bands before it, since an engine does not interrupt a
// prompt.
func (a *admission) restrict(band int, now time.Duration) {
	p, m := a.pool, &a.mask
	m.on = a.FIFO
	if cap(m.allowed) < len(p.replicas) {
		m.allowed = make([]bool, len(p.replicas))
	}
	m.allowed = m.allowed[:len(p.replicas)]
	for i := range m.allowed {
		m.allowed[i] = !a.FIFO || a.capacity.free[i]
	}
	before := 0.0
	for i := range a.Len() {
		if i < band && a.Band(i).Weight == 0 {
			before += a.counts.ArrivalRate(i, now)
		}
	}
	if before == 0 || len(p.open) < 2 {
		return
	}
	need := min(1+int(before/(reservedUse*p.load.poolSpeed())), len(p.open)-1)
	free := 0
	for _, i := range p.open {
		if p.replicas[i].longFrom(band) == 0 {
			free++
		}
	}
	if free > need {
		return
	}
	m.on = true
	for _, i := range p.open {
		if p.replicas[i].longFrom(band) == 0 {
			m.allowed[i] = false
		}
	}
}

// longFrom is how many requests of this band and the lower ones have a long prompt that the
// replica has yet to compute.
func (r *Replica) longFrom(band int) (n int) {
	for _, k := range r.prefill.long[min(band, maxBands-1):] {
		n += k
	}
	return n
}

// maxBands bounds the bands that are distinguished on a replica; later ones are
// taken together.
const maxBands = 8
