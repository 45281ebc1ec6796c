package policy

import "pointsman/decider"

// Random takes a random candidate, in proportion to its weight. Choose it to
// compare others with, or where many agents share nothing.
type Random struct{}

// Rank implements Policy.
func (Random) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	return append(dst, v.Candidates[v.DrawByWeight(-1)])
}

var _ decider.Policy = Random{}
