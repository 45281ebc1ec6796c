package queue

import "time"

// Reason is why a request was refused.
type Reason uint8

// The reasons.
const (
	Full      Reason = iota // the band's limits
	Waited                  // the band's TTL
	Late                    // the deadline cannot be met
	NoReplica               // no replica came
	Reasons                 // the number of reasons
)

var reasonNames = [Reasons]string{"queue_full", "waited_too_long", "deadline", "no_replica"}

// String is the reason in one word, for logs and metrics.
func (r Reason) String() string { return reasonNames[r] }

// Count counts the requests of one class of tenants in a band since the start.
type Count struct {
	Held     uint64          // requests that had to wait
	Admitted uint64          // requests that a replica was found for
	Gone     uint64          // clients that left while their request was held
	Spilled  uint64          // requests that another pool took
	Refused  [Reasons]uint64 // by Reason
	Waits    [len(waitBounds) + 1]uint64
	Seconds  float64 // of waiting, in total
}

// waitBounds are the bounds, in seconds, of the histogram of waiting times.
var waitBounds = [...]float64{.001, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// WaitBounds are the upper bounds of Count.Waits, in seconds. The last element
// of Waits counts what lies above them all.
func WaitBounds() []float64 { return waitBounds[:] }

// Wait counts the time that a request waited.
func (c *Count) Wait(d time.Duration) {
	s := d.Seconds()
	i := 0
	for i < len(waitBounds) && s > waitBounds[i] {
		i++
	}
	c.Waits[i]++
	c.Seconds += s
}

// Counters are the counts of a pool's bands by class of tenants, and the rates at which
// prefill work arrives.
type Counters struct {
	*Settings
	counts   [][]Count // by band and class
	arrivals []rate    // of prefill work, admitted or not, by band
}

// NewCounters returns counters that continue those of old, which may be nil.
// Bands and classes keep their counts by their names.
func NewCounters(s *Settings, old *Counters) *Counters {
	c := &Counters{Settings: s, counts: make([][]Count, s.Len()), arrivals: make([]rate, s.Len())}
	for i := range c.counts {
		c.counts[i] = make([]Count, len(s.names))
	}
	if old == nil {
		return c
	}
	for i := range old.bands {
		for k := range s.bands {
			if s.bands[k].Name == old.bands[i].Name {
				c.carry(k, old, i)
			}
		}
	}
	return c
}

// carry continues band i of old in band k.
func (c *Counters) carry(k int, old *Counters, i int) {
	c.arrivals[k] = old.arrivals[i]
	for n, name := range old.names {
		for m := range c.names {
			if c.names[m] == name {
				c.counts[k][m] = old.counts[i][n]
			}
		}
	}
}

// Of is the count of a band and of the class of a tenant.
func (c *Counters) Of(band int, tenant uint64) *Count {
	return &c.counts[c.Clamp(band)][c.classes[tenant]]
}

// Arrived notes that prefill work has arrived, in tokens.
func (c *Counters) Arrived(band int, work float64, now time.Duration) {
	c.arrivals[band].add(work, now)
}

// ArrivalRate is the rate at which prefill work arrives, in tokens/s.
func (c *Counters) ArrivalRate(band int, now time.Duration) float64 {
	return c.arrivals[band].perSecond(now)
}
