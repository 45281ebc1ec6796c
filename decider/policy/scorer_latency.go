package policy

import (
	"math"

	"pointsman/decider"
)

// LatencyScorer prefers a short time to first byte, as a mean of the replica's
// last requests. It has no opinion on a replica without a measurement in the last
// 30 seconds.
type LatencyScorer struct{}

// Score implements Scorer.
func (LatencyScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = math.NaN()
		if mean, ok := v.Replicas[i].TTFT(v.Now); ok {
			out[c] = mean.Seconds()
		}
	}
	lowestBest(out)
}

var _ decider.Scorer = LatencyScorer{}
