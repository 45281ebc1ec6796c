package queue

import (
	"math"
	"time"
)

// rate is an amount per second, over about the last minute.
type rate struct {
	sum   float64
	since time.Duration // when the first of it came
	at    time.Duration // when the last of it came
	some  bool
}

// rateMemory is how long an amount keeps 1/e of its weight, in seconds.
const rateMemory = 60

func (r *rate) add(x float64, now time.Duration) {
	if !r.some {
		r.some, r.since = true, now
	}
	r.sum = r.sum*r.kept(now) + x
	r.at = now
}

// perSecond corrects for a history that is shorter than the memory.
func (r *rate) perSecond(now time.Duration) float64 {
	if !r.some {
		return 0
	}
	past := 1 - math.Exp(-max((now-r.since).Seconds(), 1)/rateMemory)
	return r.sum * r.kept(now) / (rateMemory * past)
}

func (r *rate) kept(now time.Duration) float64 { return math.Exp(-(now - r.at).Seconds() / rateMemory) }
