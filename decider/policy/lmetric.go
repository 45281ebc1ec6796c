package policy

import "pointsman/decider"

// LMetric sends a request to the replica with the lowest product of the tokens
// that it would have to compute and the requests that it would have:
//
//	cost = (tokens in prefill + own uncached tokens) · (requests in flight + 1)
//
// It is the rule of "Simple is Better: Multiplication May Be All You Need for LLM
// Request Scheduling" (arXiv 2603.15202). Ties are broken at random. Choose it to
// compare with LMetric.
type LMetric struct{}

var lmetricTerms = []string{"tokens", "requests", "cost"}

// Terms implements Termed: uncached tokens, requests, and their product.
func (LMetric) Terms() []string { return lmetricTerms }

// UsesPrefix implements PrefixUser.
func (LMetric) UsesPrefix() bool { return true }

// Rank implements Policy.
func (LMetric) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	return v.Least(dst, 3, func(c int, replica *decider.Replica) float64 {
		i := v.Candidates[c]
		v.PrefillBacklog(i) // brings the queue up to now
		tokens := float64(v.PrefillQueueTokens(i) + r.Input - v.Cached(i))
		requests := float64(replica.InFlight() + 1)
		v.SetTerm(c, 0, tokens)
		v.SetTerm(c, 1, requests)
		v.SetTerm(c, 2, tokens*requests)
		return tokens * requests
	})
}

var (
	_ decider.Policy     = LMetric{}
	_ decider.Termed     = LMetric{}
	_ decider.PrefixUser = LMetric{}
)
