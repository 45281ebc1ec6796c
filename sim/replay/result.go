package replay

import (
	"slices"
	"time"
)

// What a request must meet to be a good one: its first token within goodTTFT,
// and the others goodPace apart in the mean, about the speed of reading.
const (
	goodTTFT = 5 * time.Second
	goodPace = 200 * time.Millisecond
)

// Result is what came of one replay.
type Result struct {
	Policy string
	// TTFT and E2E are the times to the first and to the last token of the
	// requests that were served, sorted.
	TTFT, E2E []time.Duration
	// HitRate is the share of prompt tokens that was found in a cache.
	HitRate float64
	// Good is the share of all requests that were served well; see goodTTFT.
	Good float64
	// Imbalance is the most that a replica had to compute, in prompt tokens
	// by its speed, over the mean. 1 is even.
	Imbalance float64
	// Failed requests were lost with their replica; Refused ones are larger
	// than its cache.
	Failed, Refused int
	// Shed requests were refused by the admission.
	Shed int
	// Groups are the results by Call.Group.
	Groups []Group
	// Load is sampled evenly over the time in which requests arrive.
	Load []LoadPoint
}

// Group is what came of the requests of one Call.Group.
type Group struct {
	TTFT []time.Duration // sorted
	Shed int
}

// LoadPoint is the requests in flight at one time.
type LoadPoint struct {
	At        time.Duration
	Mean, Max float64 // over the replicas
}

// Quantile is the q-quantile of sorted times, 0 of none.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Mean is the mean of times, 0 of none.
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

// result sums up a playback that has ended.
func (p *playback) result(policy string) *Result {
	r := &Result{Policy: policy, Load: p.load.points}
	good := 0
	for i := range p.flights {
		f := &p.flights[i]
		for len(r.Groups) <= f.call.Group {
			r.Groups = append(r.Groups, Group{})
		}
		group := &r.Groups[f.call.Group]
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
			if ttft <= goodTTFT && rest <= goodPace*time.Duration(f.call.Output) {
				good++
			}
		}
	}
	r.Good = float64(good) / float64(len(p.flights))
	slices.Sort(r.TTFT)
	for i := range r.Groups {
		slices.Sort(r.Groups[i].TTFT)
	}
	slices.Sort(r.E2E)
	r.HitRate, r.Imbalance = p.work()
	return r
}

// work is the hit rate of all engines and their imbalance.
func (p *playback) work() (hitRate, imbalance float64) {
	var asked, found uint64
	most, sum := 0.0, 0.0
	for i, e := range p.fleet {
		s := e.Stats()
		asked, found = asked+s.QueryTokens, found+s.HitTokens
		w := float64(s.QueryTokens-s.HitTokens) / p.o.speed(i)
		most, sum = max(most, w), sum+w
	}
	if asked == 0 {
		return 0, 1
	}
	return float64(found) / float64(asked), most / (sum / float64(len(p.fleet)))
}

// loadPoints is how many samples of the load a replay takes.
const loadPoints = 240

// loadMeter samples the requests in flight.
type loadMeter struct {
	every    time.Duration
	points   []LoadPoint
	inFlight []int
	total    int
}

func newLoadMeter(span time.Duration, replicas int) loadMeter {
	return loadMeter{
		every:  max(span/loadPoints, 1),
		points: make([]LoadPoint, 0, loadPoints), inFlight: make([]int, replicas),
	}
}

// upTo takes the samples that are due before now.
func (m *loadMeter) upTo(now time.Duration) {
	for len(m.points) < loadPoints {
		at := m.every * time.Duration(len(m.points))
		if at >= now {
			return
		}
		mean := float64(m.total) / float64(len(m.inFlight))
		m.points = append(m.points, LoadPoint{at, mean, max(mean, float64(slices.Max(m.inFlight)))})
	}
}

// sent notes a request on its way to replica k, -1 for a common queue.
func (m *loadMeter) sent(k int) { m.add(k, 1) }

// ended notes the end of one.
func (m *loadMeter) ended(k int) { m.add(k, -1) }

func (m *loadMeter) add(k, n int) {
	m.total += n
	if k >= 0 {
		m.inFlight[k] += n
	}
}
