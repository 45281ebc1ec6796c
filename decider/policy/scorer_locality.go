package policy

import "pointsman/decider"

// LocalityScorer is 1 on the agent's own node, 0.5 in its zone, 0 elsewhere.
type LocalityScorer struct{}

// Score implements Scorer.
func (LocalityScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = float64(v.Replicas[i].Near()) / 2
	}
}

var _ decider.Scorer = LocalityScorer{}
