package decider

import "time"

// occupancy estimates what fills the KV caches of the pool, and for how long a request keeps
// its part. It lives under the pool's lock.
type occupancy struct {
	generated float64       // tokens that a request has generated so far, in the mean
	output    float64       // share of the tokens of all requests that have been generated
	stay      float64       // seconds from when a prompt is begun to the end of the request, in the mean
	at        time.Duration // when they were worked out; 0 = never
}

const (
	// occupancyEvery is how often they are worked out.
	occupancyEvery = 100 * time.Millisecond
	// longestStay bounds stay, and stands for it before a request has ended.
	longestStay = 600.0
)

// update works them out at now. KV cache in use beyond the prompts is output: it is known of
// the engines that report the use of their caches. A request stays for as long as the ones
// that run are many times those that end in a second (Little's law).
func (o *occupancy) update(m *members, now time.Duration) {
	if o.at > 0 && now-o.at < occupancyEvery {
		return
	}
	output, prompts, requests, running, ends := 0.0, 0.0, 0.0, 0, 0.0
	for _, i := range m.open {
		r := m.replicas[i]
		running += r.inFlight - r.remote - max(0, r.prefill.n-1) // the first in line is being computed
		ends += r.places.ends.rate(now)
		if s := &r.signals; s.Known && now-s.At < signalsKept {
			ours := r.atSignals.waiting + r.atSignals.running
			// Requests from elsewhere have prompts that the pool does not know.
			share := min(1, ours/max(1, float64(s.Waiting)+float64(s.Running)))
			output += max(0, s.KVUsage*share-r.atSignals.usage) * float64(r.CacheTokens())
			prompts += float64(r.input)
			requests += ours
		}
	}
	o.generated, o.output = output/max(1, requests), output/max(1, output+prompts)
	o.stay, o.at = longestStay, max(now, 1)
	if ends > 0 {
		o.stay = min(longestStay, float64(max(0, running))/ends)
	}
}

// occupancy is that of the pool now.
func (v *View) occupancy() *occupancy {
	o := &v.pool.account.occupancy
	o.update(&v.pool.members, v.Now)
	return o
}

// Generated estimates the mean number of output tokens that a running request has so far,
// from what engines report of their caches; 0 if none does.
func (v *View) Generated() float64 { return v.occupancy().generated }

// OutputShare estimates which share of the tokens of the requests in flight has been
// generated, from 0 to 1, from what engines report of their caches; 0 if none does. The rest are
// prompts, shared ones counted each time.
func (v *View) OutputShare() float64 { return v.occupancy().output }

// Stay estimates for how many seconds a request of the pool keeps its part of a KV cache,
// from when its prompt is begun to its end; 600 at most, and before one has ended.
func (v *View) Stay() float64 { return v.occupancy().stay }
