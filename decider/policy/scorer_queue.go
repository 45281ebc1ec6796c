package policy

import "pointsman/decider"

// QueueScorer prefers few requests that wait for their first token: as the engine
// reports it, or else as predicted.
type QueueScorer struct{}

// Score implements Scorer.
func (QueueScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = v.WaitingRequests(i)
	}
	lowestBest(out)
}

var _ decider.Scorer = QueueScorer{}
