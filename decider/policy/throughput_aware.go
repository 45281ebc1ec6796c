package policy

import "pointsman/decider"

// ThroughputAware takes the candidate that was sent the fewest requests in the
// last second for its weight, ties at random. It is the second router of Ray's
// guide, which narrows the choice by adapter and by locality first: set
// lora_affinity and locality for that. Choose it for short requests of equal size.
type ThroughputAware struct{}

var throughputAwareTerms = []string{"throughput"}

// Terms implements Termed: throughput is in requests a second.
func (ThroughputAware) Terms() []string { return throughputAwareTerms }

// Rank implements Policy.
func (ThroughputAware) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	return v.Least(dst, 3, func(c int, r *decider.Replica) float64 {
		x := v.Throughput(v.Candidates[c])
		v.SetTerm(c, 0, x)
		return x / float64(max(r.Weight(), 1))
	})
}

var (
	_ decider.Policy = ThroughputAware{}
	_ decider.Termed = ThroughputAware{}
)
