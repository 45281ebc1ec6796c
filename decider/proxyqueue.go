package decider

import (
	"math"
	"time"
)

// An admission without Hold leaves the waiting to the proxy: it says in which
// order, by a class and an offset in time, and refuses by what it predicts.

// classStep is between the classes of two bands.
const classStep = 10

// mostOffset is HAProxy's bound of an offset, in milliseconds.
const mostOffset = 524_287

// queueInProxy decides r, and its place in the proxy's queues.
func (p *Pool) queueInProxy(r *Request, d *Decision, prefill float64, now time.Duration) {
	q := p.queue
	b, config := &q.bands[r.Band], &q.Bands[r.Band]
	work := prefill + float64(max(r.Output, 0))
	t := b.tenant(q, r.Tenant)
	start := max(t.start, b.tag)
	lead := start - b.tag
	t.start = start + work/t.weight
	d.Class, d.Ordered = classStep*r.Band, true
	if config.Weight > 0 {
		// Bands with weights share a class, that of the first of them.
		for q.Bands[d.Class/classStep].Weight == 0 || d.Class > 0 && q.Bands[d.Class/classStep-1].Weight > 0 {
			d.Class -= classStep
		}
		own := max(b.start, q.tag)
		lead += own - q.tag
		b.start = own + work/float64(config.Weight)
	}
	offset := lead / p.totalSpeed()
	switch config.Order {
	case ByDeadline:
		offset += mostOffset / 2e3
		if r.Deadline > 0 {
			offset += (r.Deadline - now).Seconds() - mostOffset/2e3
		}
	case LeastWorkLeft:
		offset += prefill / (ageing * p.poolSpeed())
	}
	d.Offset = int(min(max(math.Round(offset*1000), -mostOffset), mostOffset))
	b.counts[t.class].Bound++
	p.decide(r, d, now)
	if v := p.reservations.find(r.ID); v != nil {
		v.start = start
	}
	b.forget(t)
}

// served notes that the first byte of a request that the proxy had queued has
// come: its turn was now.
func (q *queue) served(v *reservation) {
	b := &q.bands[v.request.Band]
	b.tag = max(b.tag, v.start)
	if q.Bands[v.request.Band].Weight > 0 {
		q.tag = max(q.tag, b.start)
	}
}

// before is how many requests in flight go before one of that band, or with it.
func (q *queue) before(band int) (n int) {
	for i := range q.bands {
		if i <= band || q.Bands[band].Weight > 0 && q.Bands[i].Weight > 0 {
			n += q.bands[i].placed
		}
	}
	return n
}

// waitingInProxy is how many requests of the band wait in the proxy, where its
// servers take no more than the replicas' limits.
func (p *Pool) waitingInProxy(band int) int {
	return min(p.overflow(band), p.queue.bands[band].placed)
}

// overflow is how many requests of the band, and of those before it, are more
// than the replicas take at a time.
func (p *Pool) overflow(band int) int {
	places := 0
	for _, i := range p.open {
		if p.replicas[i].limit == 0 {
			return 0
		}
		places += p.replicas[i].limit
	}
	return max(0, p.queue.before(band)-places)
}

// proxyWait is how long a request of that band which comes now would wait.
func (p *Pool) proxyWait(band int) time.Duration {
	n := p.overflow(band)
	if n == 0 {
		return 0
	}
	if perSecond := p.queue.ended.perSecond(p.clock()); perSecond > 0 {
		return seconds(float64(n) / perSecond)
	}
	return 0
}

// placed notes that a request of a band is on its way, or no more.
func (p *Pool) placed(v *reservation, n int) {
	if q := p.queue; q != nil {
		q.bands[min(v.request.Band, len(q.bands)-1)].placed += n
	}
}
