package decider

import "math"

const (
	lengthsOver   = 2048 // requests after which one counts for 1/e
	perDoubling   = 4    // classes of lengths
	lengthClasses = 28 * perDoubling
)

// lengths is the prefill cost of a pool's last requests, by that of each.
type lengths struct {
	costs    [lengthClasses]float64 // of the requests of a class, the later the more they count
	requests float64                // of all classes, in the same way
	each     float64                // how much the next one counts
}

func classOf(cost float64) int {
	return int(min(perDoubling*math.Log2(max(cost, 1)), lengthClasses-1))
}

func (l *lengths) add(cost float64) {
	if l.each *= 1 + 1.0/lengthsOver; l.each == 0 || l.each > 1e6 {
		l.fade()
	}
	l.costs[classOf(cost)] += cost * l.each
	l.requests += l.each
}

// fade makes the next request count 1, and those before it as much less.
func (l *lengths) fade() {
	for k := range l.costs {
		l.costs[k] /= max(l.each, 1)
	}
	l.requests /= max(l.each, 1)
	l.each = 1
}

// shorter is the prefill cost of requests of less than that cost each, per request of any.
func (l *lengths) shorter(cost float64) float64 {
	sum := 0.0
	for _, c := range l.costs[:classOf(cost)] {
		sum += c
	}
	return sum / max(l.requests, 1)
}
