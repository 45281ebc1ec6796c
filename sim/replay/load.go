package replay

import (
	"slices"
	"time"
)

// LoadPoint is the number of requests in flight at one time.
type LoadPoint struct {
	At        time.Duration
	Mean, Max float64 // over the replicas
}

// loadPoints is the number of load samples in a replay.
const loadPoints = 240

// loadSampler samples the requests in flight at even intervals.
type loadSampler struct {
	interval time.Duration
	points   []LoadPoint
	inFlight []int // by replica
	total    int
}

func newLoadSampler(span time.Duration, replicas int) loadSampler {
	return loadSampler{
		interval: max(span/loadPoints, 1),
		points:   make([]LoadPoint, 0, loadPoints), inFlight: make([]int, replicas),
	}
}

// advance takes the samples that are due before now.
func (l *loadSampler) advance(now time.Duration) {
	for len(l.points) < loadPoints {
		at := l.interval * time.Duration(len(l.points))
		if at >= now {
			return
		}
		mean := float64(l.total) / float64(len(l.inFlight))
		l.points = append(l.points, LoadPoint{at, mean, max(mean, float64(slices.Max(l.inFlight)))})
	}
}

// add counts n more requests in flight, at replica k or, if k is -1, at none yet.
func (l *loadSampler) add(k, n int) {
	l.total += n
	if k >= 0 {
		l.inFlight[k] += n
	}
}
