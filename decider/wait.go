package decider

import (
	"math"
	"time"
)

// retryAfter estimates in how many seconds a request of that band would find a replica,
// from the queue ahead of it and the rate at which that drains.
func (a *admission) retryAfter(band int) int {
	wait := a.wait(band)
	if len(a.pool.open) == 0 {
		wait = max(wait, a.pool.config.RetryAfter)
	}
	return int(min(max(math.Ceil(wait.Seconds()), 1), 600))
}

// wait estimates how long a new request of that band would wait.
func (a *admission) wait(band int) time.Duration {
	if !a.Hold {
		return a.proxyWait(band)
	}
	return seconds(a.queue.WorkAhead(band) / a.departure.rate(a.pool.load.totalSpeed(&a.pool.members)))
}

// proxyWait estimates how long a new request of that band would wait in the proxy.
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

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 1e6) * float64(time.Second))
}
