package replay

import (
	"slices"
	"time"
)

// Result is the result of one replay.
type Result struct {
	Policy string
	// TTFT and E2E are the times to first and to last token of the requests
	// that were served, sorted.
	TTFT, E2E []time.Duration
	// TPOT are their mean times from one token to the next, sorted. Answers of
	// one token have none.
	TPOT []time.Duration
	// HitRate is the share of prompt tokens found in a cache, 0 to 1.
	HitRate float64
	// Loaded is the part of it that came from the memory of the hosts.
	Loaded float64
	// Goodput is the share of all requests that were served within Options.SLO,
	// Good within 5 s and at the speed of reading, 200 ms a token.
	Goodput, Good float64
	// TokensPerSecond are the output tokens of the requests that were served, over
	// the time from the first arrival to the last end.
	TokensPerSecond float64
	// Imbalance is the largest computed prompt work of a replica, relative to
	// its speed, over the mean. 1 is even.
	Imbalance float64
	// Failed requests were lost with their replica. Refused ones are larger
	// than its cache. Shed ones were rejected by the admission.
	Failed, Refused, Shed int
	// Groups are the results by trace.Request.Group.
	Groups []Group
	// Load is sampled evenly over the time in which requests arrive.
	Load []LoadPoint
}

// Group is the result for the requests of one group.
type Group struct {
	TTFT []time.Duration // sorted
	Shed int
}

// Quantile returns the q-quantile of sorted times, 0 if there are none.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Mean returns the mean of times, 0 if there are none.
func Mean(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	var sum float64
	for _, t := range times {
		sum += float64(t)
	}
	return time.Duration(sum / float64(len(times)))
}

// result summarises a simulation that has ended.
func (s *simulation) result(policy string) *Result {
	r := &Result{Policy: policy, Load: s.load.points}
	good, reads, tokens, ours, last := 0, 0, 0, 0, time.Duration(0)
	for i := range s.flights {
		f := &s.flights[i]
		if f.foreign {
			continue
		}
		ours++
		for len(r.Groups) <= f.request.Group {
			r.Groups = append(r.Groups, Group{})
		}
		group := &r.Groups[f.request.Group]
		switch f.state {
		case flightShed:
			r.Shed++
			group.Shed++
		case flightFailed:
			r.Failed++
		case flightRefused:
			r.Refused++
		case flightServed:
			ttft, rest := f.first-f.at, f.done-f.first
			group.TTFT = append(group.TTFT, ttft)
			r.TTFT, r.E2E = append(r.TTFT, ttft), append(r.E2E, f.done-f.at)
			if f.request.Output > 1 {
				r.TPOT = append(r.TPOT, rest/time.Duration(f.request.Output-1))
			}
			if s.o.SLO.meets(f) {
				good++
			}
			if reading.meets(f) {
				reads++
			}
			tokens, last = tokens+f.request.Output, max(last, f.done)
		}
	}
	r.Goodput = float64(good) / float64(max(ours, 1))
	r.Good = float64(reads) / float64(max(ours, 1))
	if last > 0 {
		r.TokensPerSecond = float64(tokens) / (last - s.flights[0].at).Seconds()
	}
	slices.Sort(r.TTFT)
	slices.Sort(r.TPOT)
	for i := range r.Groups {
		slices.Sort(r.Groups[i].TTFT)
	}
	slices.Sort(r.E2E)
	r.HitRate, r.Loaded, r.Imbalance = s.prefillStats()
	return r
}

// prefillStats returns the hit rate, the part of it from hosts, and the imbalance over all
// engines.
func (s *simulation) prefillStats() (hitRate, fromHosts, imbalance float64) {
	var queried, hit, loaded uint64
	most, sum := 0.0, 0.0
	for i, e := range s.engines {
		stats := e.Stats()
		queried, hit, loaded = queried+stats.QueryTokens, hit+stats.HitTokens, loaded+stats.LoadedTokens
		work := float64(stats.QueryTokens-stats.HitTokens) / s.o.speed(i)
		most, sum = max(most, work), sum+work
	}
	if queried == 0 {
		return 0, 0, 1
	}
	return float64(hit) / float64(queried), float64(loaded) / float64(queried), most / (sum / float64(len(s.engines)))
}
