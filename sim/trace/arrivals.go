package trace

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Arrival is a request and its time in a replay.
type Arrival struct {
	At      time.Duration
	Request *Request
}

// Arrivals scales the trace to a mean of rate requests/s and keeps its order
// and its bursts. Requests of one tick get random times within it.
func (t *Trace) Arrivals(rate float64, random *rand.Rand) []Arrival {
	list := make([]Arrival, len(t.Requests))
	var drawn []time.Duration
	for i := 0; i < len(list); i += len(drawn) {
		at, n := t.Requests[i].At, 1
		for i+n < len(list) && t.Requests[i+n].At == at {
			n++
		}
		tick := t.Tick
		if i+n < len(list) {
			tick = min(tick, t.Requests[i+n].At-at)
		}
		drawn = drawn[:0]
		for range n {
			drawn = append(drawn, at+time.Duration(random.Float64()*float64(tick)))
		}
		slices.Sort(drawn)
		for k, at := range drawn {
			list[i+k] = Arrival{at, &t.Requests[i+k]}
		}
	}
	first, span := list[0].At, list[len(list)-1].At-list[0].At
	for i := range list {
		if span == 0 {
			list[i].At = time.Duration(float64(i) / rate * float64(time.Second))
		} else {
			share := float64(list[i].At-first) / float64(span)
			list[i].At = time.Duration(share * float64(len(list)) / rate * float64(time.Second))
		}
	}
	return list
}
