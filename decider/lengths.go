package decider

import "math"

const (
	lengthsOver   = 2048 // requests after which one counts for 1/e
	perDoubling   = 4    // classes of lengths
	lengthClasses = 28 * perDoubling
	mostEach      = 1e6 // the weight at which weights are scaled down
)

// lengths says how much of a pool's prefill cost comes with short requests and how much with
// long ones. Later requests have larger weights, so that nothing has to be decayed.
type lengths struct {
	costs    [lengthClasses]float64 // prefill cost of the requests of a class, weighted
	requests float64                // the sum of the weights
	each     float64                // the weight of the last request
}

func classOf(cost float64) int {
	return int(min(perDoubling*math.Log2(max(cost, 1)), lengthClasses-1))
}

func (l *lengths) add(cost float64) {
	if l.each = max(1, l.each*(1+1.0/lengthsOver)); l.each > mostEach {
		l.scaleDown()
	}
	l.costs[classOf(cost)] += cost * l.each
	l.requests += l.each
}

// scaleDown makes the weight of the next request 1.
func (l *lengths) scaleDown() {
	for k := range l.costs {
		l.costs[k] /= l.each
	}
	l.requests /= l.each
	l.each = 1
}

// shorter is the prefill cost of all requests that cost less than that each, divided by the
// number of requests of any length.
func (l *lengths) shorter(cost float64) float64 {
	sum := 0.0
	for _, c := range l.costs[:classOf(cost)] {
		sum += c
	}
	return sum / max(l.requests, 1)
}
