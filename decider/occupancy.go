package decider

import "time"

// Occupancy is what fills the KV caches of a pool, and for how long a request keeps its part,
// in the mean of all requests. What is generated is known of the engines that report the use
// of their caches: it is the cache in use beyond the prompts, and 0 if none does.
type Occupancy struct {
	Generated   float64 // tokens that a request has generated so far
	OutputShare float64 // share of the tokens in flight that have been generated, from 0 to 1; prompts are the rest, shared ones counted each time
	Stay        float64 // seconds from when a prompt is begun to the end of its request; 600 at most, and before one has ended
}

// longestStay bounds Stay.
const longestStay = 600.0

// occupancy keeps an Occupancy for a while. It lives under the pool's lock.
type occupancy struct {
	last Occupancy
	at   time.Duration // when it was worked out; 0 = never
}

// occupancyEvery is how often it is worked out.
const occupancyEvery = 100 * time.Millisecond

// of is the Occupancy of m at now. A request stays for as long as the ones that run are many times
// those that end in a second (Little's law).
func (o *occupancy) of(m *members, now time.Duration) *Occupancy {
	if o.at > 0 && now-o.at < occupancyEvery {
		return &o.last
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
	o.at = max(now, 1)
	o.last = Occupancy{
		Generated:   output / max(1, requests),
		OutputShare: output / max(1, output+prompts),
		Stay:        longestStay,
	}
	if ends > 0 {
		o.last.Stay = min(longestStay, float64(max(0, running))/ends)
	}
	return &o.last
}

// Occupancy is that of the pool, as of the last 100 ms.
func (v *View) Occupancy() *Occupancy {
	return v.pool.account.occupancy.of(&v.pool.members, v.Now)
}
