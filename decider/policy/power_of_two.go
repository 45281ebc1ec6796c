package policy

import "pointsman/decider"

// PowerOfTwo draws two distinct candidates at random and takes the one with fewer
// requests in flight (Mitzenmacher, "The power of two choices in randomized load
// balancing", 2001). It is the default of Ray Serve: cheap with any number of
// replicas, and stable when counts are a little stale.
type PowerOfTwo struct{}

// Rank implements Policy. The other candidate drawn is the first fallback.
func (PowerOfTwo) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	a := v.DrawByWeight(-1)
	if len(v.Candidates) == 1 {
		return append(dst, v.Candidates[0])
	}
	b := v.DrawByWeight(a)
	x, y := v.Candidates[a], v.Candidates[b]
	lx, ly := v.Replicas[x].Load(), v.Replicas[y].Load()
	if ly < lx || ly == lx && v.Rand.IntN(2) == 0 {
		x, y = y, x
	}
	return append(dst, x, y)
}

var _ decider.Policy = PowerOfTwo{}
