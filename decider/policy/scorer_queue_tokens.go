package policy

import "pointsman/decider"

// QueueTokensScorer prefers little prefill work before the request, in tokens
// as View.Queue predicts it. It stands in the place of queue where prompts
// differ in length: one long prompt is more to wait for than ten short ones.
type QueueTokensScorer struct{}

// Score implements Scorer.
func (QueueTokensScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = v.PrefillBacklog(i)
	}
	lowestBest(out)
}

var _ decider.Scorer = QueueTokensScorer{}
