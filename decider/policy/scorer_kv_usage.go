package policy

import "pointsman/decider"

// KVUsageScorer is the free share of the KV cache: as the engine reports it, or
// else the share that the requests in flight do not use.
type KVUsageScorer struct{}

// Score implements Scorer.
func (KVUsageScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = 1 - min(1, max(0, v.KVUsage(i)))
	}
}

var _ decider.Scorer = KVUsageScorer{}
