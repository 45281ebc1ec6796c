package policy

import "pointsman/decider"

// LeastTokens takes the candidate with the fewest tokens in flight for its weight,
// ties at random. The tokens are those of prompts and, for requests that set a
// limit, of answers. Choose it if requests differ in size and share no prefixes.
type LeastTokens struct{}

var leastTokensTerms = []string{"tokens"}

// Terms implements Termed: tokens is (tokens in flight + the request's own) /
// weight.
func (LeastTokens) Terms() []string { return leastTokensTerms }

// Rank implements Policy.
func (LeastTokens) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	mine := r.Input + max(r.Output, 0)
	return v.Least(dst, 3, func(c int, replica *decider.Replica) float64 {
		tokens := float64(replica.Tokens()+mine) / float64(replica.Weight())
		v.SetTerm(c, 0, tokens)
		return tokens
	})
}

var (
	_ decider.Policy = LeastTokens{}
	_ decider.Termed = LeastTokens{}
)
