package policy

import "pointsman/decider"

// TokensScorer prefers few tokens in flight, of prompts and requested output, on
// the fixed scale of llm-d's token load: 4,194,304 and more are 0.
type TokensScorer struct{}

const tokensFull = 4 << 20

// Score implements Scorer.
func (TokensScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = 1 - min(1, float64(v.Replicas[i].Tokens())/tokensFull)
	}
}

var _ decider.Scorer = TokensScorer{}
