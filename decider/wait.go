package decider

import (
	"math"
	"time"
)

// retryAfter is in how many seconds a request of that band would find a
// replica, by what waits before it and how fast that leaves.
func (a *admission) retryAfter(band int) int {
	wait := a.wait(band)
	if len(a.pool.open) == 0 {
		wait = max(wait, a.pool.config.RetryAfter)
	}
	return int(min(max(math.Ceil(wait.Seconds()), 1), 600))
}

// wait is how long a request of that band which comes now would wait.
func (a *admission) wait(band int) time.Duration {
	if !a.Hold {
		return a.proxyWait(band)
	}
	return seconds(a.queue.WorkAhead(band) / a.departure.rate(a.pool.totalSpeed()))
}

// proxyWait is how long a request of that band which comes now would wait in the
// proxy.
func (a *admission) proxyWait(band int) time.Duration {
	n := a.proxy.Excess(band, a.pool.places())
	if n == 0 {
		return 0
	}
	if perSecond := a.proxy.EndRate(a.pool.clock()); perSecond > 0 {
		return seconds(float64(n) / perSecond)
	}
	return 0
}

// places is how many requests the replicas take at a time.
func (p *Pool) places() (n int) {
	for _, i := range p.open {
		if p.replicas[i].limit == 0 {
			return math.MaxInt
		}
		n += p.replicas[i].limit
	}
	return n
}

// prospects is how much of r's prompt no replica has cached, and how soon its
// first token could come.
func (p *Pool) prospects(r *Request, now time.Duration) (prefill float64, soonest time.Duration) {
	v := &p.view
	v.Now = now
	p.view.matchPrefix(r)
	prefill = float64(r.Input - v.BestCached())
	best := math.Inf(1)
	for _, i := range p.open {
		best = min(best, (v.PrefillBacklog(i)+v.PrefillCost(i))/v.PrefillSpeed(i))
	}
	if len(p.open) == 0 {
		best = 0 // when one comes is unknown: the queue watches the deadline
	}
	return prefill, seconds(best)
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 1e6) * float64(time.Second))
}

// poolSpeed is the mean prefill speed of the replicas, in tokens/s.
func (p *Pool) poolSpeed() float64 { return p.load.poolSpeed() }

// totalSpeed is the prefill speed of all open replicas together, or of the one
// that may come.
func (p *Pool) totalSpeed() (sum float64) {
	if len(p.open) == 0 {
		return p.poolSpeed()
	}
	for _, i := range p.open {
		sum += p.load.speedOf(p.replicas[i])
	}
	return max(sum, 1)
}
