package decider

import (
	"math"
	"time"
)

// demandMemory is after how long a token asked for counts for 1/e.
const demandMemory = time.Minute

// demand is the rate at which prefill cost arrives.
type demand struct {
	sum       float64
	requests  float64       // those that brought it
	at, since time.Duration // the last arrival, and the first
	some      bool
}

func (d *demand) add(cost float64, now time.Duration) {
	if !d.some {
		d.some, d.since, d.at = true, now, now
	}
	kept := d.kept(now)
	d.sum, d.requests = d.sum*kept+cost, d.requests*kept+1
	d.at = now
}

// kept is the share of what had arrived by the last arrival that still counts.
func (d *demand) kept(now time.Duration) float64 {
	return math.Exp(-float64(now-d.at) / float64(demandMemory))
}

func (d *demand) decayed(now time.Duration) float64 { return d.sum * d.kept(now) }

// rate is in tokens/s. It is known after a minute. Before, what arrived is
// assumed to have arrived evenly, in at least ten seconds.
func (d *demand) rate(now time.Duration) float64 { return d.perSecond(d.sum, now) }

// arrivals is in requests/s, in the same way.
func (d *demand) arrivals(now time.Duration) float64 { return d.perSecond(d.requests, now) }

func (d *demand) perSecond(sum float64, now time.Duration) float64 {
	if !d.some {
		return 0
	}
	known := max(now-d.since, 10*time.Second)
	return sum * d.kept(now) / demandMemory.Seconds() / (1 - math.Exp(-float64(known)/float64(demandMemory)))
}
