package queue

import (
	"math"
	"time"
)

// Proxy orders the requests that wait in the proxy's own queues: each gets a
// class and, within it, an offset in time.
type Proxy struct {
	*Settings
	bands []proxyBand
	tag   float64 // start tag of the weighted band last served
	ended rate    // of requests
}

// proxyBand is the state of a band whose requests wait in the proxy.
type proxyBand struct {
	flows    map[uint64]*flow // tenants ahead of tag
	tag      float64          // start tag of the tenant last served
	start    float64          // the band's own start tag, among those with a weight
	inFlight int              // requests sent and not ended
}

// classStep lies between the classes of two bands.
const classStep = 10

// mostOffset is HAProxy's bound of an offset, in milliseconds.
const mostOffset = 524_287

// NewProxy returns a Proxy to which nothing has been sent.
func NewProxy(s *Settings) *Proxy {
	p := &Proxy{Settings: s, bands: make([]proxyBand, s.Len())}
	for i := range p.bands {
		p.bands[i].flows = map[uint64]*flow{}
	}
	return p
}

// Slot is the place of a request in the proxy's queues.
type Slot struct {
	Class  int     // the lowest goes first
	Offset int     // within the class, milliseconds
	Start  float64 // its tenant's start tag, for Served
}

// Next returns the slot of a new request. speed is the prefill speed of a replica,
// total that of all together, in tokens/s.
func (p *Proxy) Next(e Entry, now time.Duration, speed, total float64) Slot {
	b, c := &p.bands[e.Band], &p.Settings.bands[e.Band]
	f := b.flows[e.Tenant]
	if f == nil {
		f = new(flow)
		*f = p.newFlow(e.Tenant)
		b.flows[e.Tenant] = f
	}
	s := Slot{Class: classStep * e.Band, Start: max(f.start, b.tag)}
	lead := s.Start - b.tag
	f.start = s.Start + e.Work/f.weight
	if c.Weight > 0 {
		// Bands with weights share a class, that of the first of them.
		for !p.weighted(s.Class/classStep) || s.Class > 0 && p.weighted(s.Class/classStep-1) {
			s.Class -= classStep
		}
		own := max(b.start, p.tag)
		lead += own - p.tag
		b.start = own + e.Work/float64(c.Weight)
	}
	offset := lead / total
	switch c.Order {
	case ByDeadline:
		offset += mostOffset / 2e3
		if e.Deadline > 0 {
			offset += (e.Deadline - now).Seconds() - mostOffset/2e3
		}
	case ByWork:
		offset += e.Prefill / (ageing * speed)
	}
	s.Offset = int(min(max(math.Round(offset*1000), -mostOffset), mostOffset))
	b.forget(f)
	return s
}

// forget drops a tenant that has not had more than the others.
func (b *proxyBand) forget(f *flow) {
	if f.start <= b.tag {
		delete(b.flows, f.id)
	}
	if len(b.flows) > tenantsKept {
		clear(b.flows)
	}
}

// Served notes the first byte of a request whose slot had that start tag: its turn was now.
func (p *Proxy) Served(band int, start float64) {
	b := &p.bands[p.Clamp(band)]
	b.tag = max(b.tag, start)
	if p.weighted(p.Clamp(band)) {
		p.tag = max(p.tag, b.start)
	}
}

// Sent notes that n more requests of a band are in flight; n may be negative.
func (p *Proxy) Sent(band, n int) { p.bands[p.Clamp(band)].inFlight += n }

// Ended notes that a request has ended.
func (p *Proxy) Ended(now time.Duration) { p.ended.add(1, now) }

// EndRate is the number of requests that end per second.
func (p *Proxy) EndRate(now time.Duration) float64 { return p.ended.perSecond(now) }

// Excess is by how many the requests of the band, and of those that go before
// it, exceed the replicas' places.
func (p *Proxy) Excess(band, places int) (n int) {
	for i := range p.bands {
		if i <= band || p.weighted(band) && p.weighted(i) {
			n += p.bands[i].inFlight
		}
	}
	return max(0, n-places)
}

// Waiting is how many requests of the band wait in the proxy, if its servers take no more
// than places requests.
func (p *Proxy) Waiting(band, places int) int {
	return min(p.Excess(band, places), p.bands[band].inFlight)
}
