package policy

import "pointsman/decider"

// RunningScorer prefers few requests that generate tokens: as the engine reports
// it, or else all in flight but those predicted to wait.
type RunningScorer struct{}

// Score implements Scorer.
func (RunningScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = v.RunningRequests(i)
	}
	lowestBest(out)
}

var _ decider.Scorer = RunningScorer{}
