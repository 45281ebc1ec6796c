package policy

import "pointsman/decider"

// ThroughputScorer prefers few requests per second: as the engine reports it, or
// else those sent to the replica in the last second.
type ThroughputScorer struct{}

// Score implements Scorer.
func (ThroughputScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = v.Throughput(i)
	}
	lowestBest(out)
}

var _ decider.Scorer = ThroughputScorer{}
