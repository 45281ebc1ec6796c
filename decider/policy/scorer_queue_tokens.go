package policy

import "pointsman/decider"

// QueueTokensScorer prefers a small prefill backlog, in tokens. Use it in the
// place of queue if prompts differ in length: one long prompt takes longer than
// ten short ones.
type QueueTokensScorer struct{}

// Score implements Scorer.
func (QueueTokensScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = v.PrefillBacklog(i)
	}
	lowestBest(out)
}

var _ decider.Scorer = QueueTokensScorer{}
