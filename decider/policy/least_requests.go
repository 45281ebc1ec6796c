package policy

import "pointsman/decider"

// LeastRequests takes the candidate with the fewest requests in flight for its
// weight, ties at random. Choose it for requests of about equal size.
type LeastRequests struct{}

var leastRequestsTerms = []string{"load"}

// Terms implements Termed: load is (requests in flight + 1) / weight.
func (LeastRequests) Terms() []string { return leastRequestsTerms }

// Rank implements Policy.
func (LeastRequests) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	return v.Least(dst, 3, func(c int, r *decider.Replica) float64 {
		load := r.Load()
		v.SetTerm(c, 0, load)
		return load
	})
}

var (
	_ decider.Policy = LeastRequests{}
	_ decider.Termed = LeastRequests{}
)
