package decider

import "time"

// bandCount is what a band had of one class of tenants.
type bandCount struct {
	Held    uint64 // requests that had to wait
	Bound   uint64 // requests that a replica was found for
	Gone    uint64 // clients that left while their request was held
	Spilled uint64 // taken by another pool
	Shed    [sheds]uint64
	Waits   [len(waitBounds) + 1]uint64
	Seconds float64 // of waiting, all together
}

// waitBounds are the bounds, in seconds, of the histogram of times held.
var waitBounds = [...]float64{.001, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// WaitBounds are the upper bounds of BandCount.Waits, in seconds; the last
// place of Waits is of all above.
func WaitBounds() []float64 { return waitBounds[:] }

func (c *bandCount) wait(d time.Duration) {
	s := d.Seconds()
	i := 0
	for i < len(waitBounds) && s > waitBounds[i] {
		i++
	}
	c.Waits[i]++
	c.Seconds += s
}

// carry takes over what is counted and learned of band i of old.
func (b *bandQueue) carry(old *queue, i int, a *admission) {
	from := &old.bands[i]
	b.load = from.load
	for k, name := range old.names {
		for n := range a.names {
			if a.names[n] == name {
				b.counts[n] = from.counts[k]
			}
		}
	}
}

// AdmissionStatus is a pool's queue at one moment.
type AdmissionStatus struct {
	Hold      bool         `json:"hold"` // false: the proxy queues
	Matching  string       `json:"matching"`
	Awaits    bool         `json:"awaits_replica"` // no replica is open, and requests are held until one is
	Bands     []BandStatus `json:"bands"`
	Saturated int          `json:"saturated"` // open replicas without room
	Wait      float64      `json:"expected_wait_s"`
}

// BandStatus is one band of it.
type BandStatus struct {
	Name   string  `json:"name"`
	Queued int     `json:"queued"`
	Bytes  int     `json:"bytes"`
	Tokens int     `json:"tokens"`
	Oldest float64 `json:"oldest_s"`
	// Counts are by class of tenants, "other" and those with a weight.
	Counts map[string]BandCount `json:"counts"`
}

// BandCount is what a band had of one class of tenants since the start.
type BandCount struct {
	Held        uint64            `json:"held"`
	Bound       uint64            `json:"bound"`
	Gone        uint64            `json:"client_gone"`
	Spilled     uint64            `json:"spilled"`
	Shed        map[string]uint64 `json:"shed"`
	Waits       []uint64          `json:"-"` // by WaitBounds
	WaitSeconds float64           `json:"wait_s"`
}

// admissionStatus is the queue as it is now, nil without one.
func (p *Pool) admissionStatus(now time.Duration) *AdmissionStatus {
	q := p.queue
	if q == nil {
		return nil
	}
	s := &AdmissionStatus{Hold: q.Hold, Matching: "out_of_order", Awaits: p.awaits(now)}
	if q.FIFO {
		s.Matching = "fifo"
	}
	for _, i := range p.open {
		if p.saturation(p.replicas[i], now) != "" {
			s.Saturated++
		}
	}
	oldest := make([]time.Duration, len(q.bands))
	for i := range oldest {
		oldest[i] = now
	}
	for _, h := range q.byID {
		oldest[h.band] = min(oldest[h.band], h.at)
	}
	for i := range q.bands {
		b := &q.bands[i]
		bs := BandStatus{
			Name: q.Bands[i].Name, Queued: b.n, Bytes: b.bytes, Tokens: int(b.work),
			Oldest: (now - oldest[i]).Seconds(), Counts: map[string]BandCount{},
		}
		if !q.Hold {
			bs.Queued = p.waitingInProxy(i)
		}
		for k := range b.counts {
			c := &b.counts[k]
			shed := map[string]uint64{}
			for why, n := range c.Shed {
				shed[shedNames[why]] = n
			}
			bs.Counts[q.names[k]] = BandCount{c.Held, c.Bound, c.Gone, c.Spilled, shed, append([]uint64{}, c.Waits[:]...), c.Seconds}
		}
		s.Bands = append(s.Bands, bs)
	}
	last := len(q.bands) - 1
	if s.Wait = p.queueWait(last).Seconds(); !q.Hold {
		s.Wait = p.proxyWait(last).Seconds()
	}
	return s
}

// Place is where a request would stand in the queue.
type Place struct {
	Band     string  `json:"band"`
	Class    string  `json:"tenants"`
	Deadline float64 `json:"deadline_s,omitempty"`     // from now
	Ahead    int     `json:"ahead"`                    // requests of its band and of those before
	Wait     float64 `json:"expected_wait_s"`          // without the time until a replica comes
	Awaits   bool    `json:"awaits_replica,omitempty"` // as AdmissionStatus.Awaits
}

// placeOf is where r would stand, nil without a queue.
func (p *Pool) placeOf(r *Request, now time.Duration) *Place {
	q := p.queue
	if q == nil {
		return nil
	}
	band := min(r.Band, len(q.bands)-1)
	x := &Place{Band: q.Bands[band].Name, Class: q.names[q.class(r.Tenant)], Wait: p.queueWait(band).Seconds(), Awaits: p.awaits(now)}
	if r.Deadline > 0 {
		x.Deadline = (r.Deadline - now).Seconds()
	}
	for i := range q.bands[:band+1] {
		x.Ahead += q.bands[i].n
	}
	if !q.Hold {
		x.Wait, x.Ahead = p.proxyWait(band).Seconds(), p.overflow(band)
	}
	return x
}
