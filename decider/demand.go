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
	at, since time.Duration // the last arrival, and the first
	some      bool
}

func (d *demand) add(cost float64, now time.Duration) {
	if !d.some {
		d.some, d.since, d.at = true, now, now
	}
	d.sum = d.decayed(now) + cost
	d.at = now
}

func (d *demand) decayed(now time.Duration) float64 {
	return d.sum * math.Exp(-float64(now-d.at)/float64(demandMemory))
}

// rate is in tokens/s. It is known after a minute. Before, what arrived is
// assumed to have arrived evenly, in at least ten seconds.
func (d *demand) rate(now time.Duration) float64 {
	if !d.some {
		return 0
	}
	known := max(now-d.since, 10*time.Second)
	return d.decayed(now) / demandMemory.Seconds() / (1 - math.Exp(-float64(known)/float64(demandMemory)))
}
