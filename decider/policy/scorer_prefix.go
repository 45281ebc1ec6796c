package policy

import "pointsman/decider"

// PrefixScorer is the share of the prompt that the replica is believed to hold
// in its KV cache. It has no opinion on a request without a prompt.
type PrefixScorer struct{}

// UsesPrefix implements PrefixUser.
func (PrefixScorer) UsesPrefix() bool { return true }

// Score implements Scorer.
func (PrefixScorer) Score(r *decider.Request, v *decider.View, out []float64) {
	if r.Input <= 0 {
		noOpinion(out)
		return
	}
	for c, i := range v.Candidates {
		out[c] = min(1, float64(v.Cached(i))/float64(r.Input))
	}
}

var (
	_ decider.Scorer     = PrefixScorer{}
	_ decider.PrefixUser = PrefixScorer{}
)
