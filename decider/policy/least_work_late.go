package policy

import "pointsman/decider"

// LeastWorkLate is LeastWork for requests that are held until a replica has
// capacity, which an Admission with Hold does. At that time the queues are almost
// empty, so the weights differ from those of early binding, and the position of a
// token in the prompt does not matter. Choose it where the proxy can wait for the
// answer: HAProxy from 3.0 on, and nginx.
type LeastWorkLate struct{}

// The weights of the terms in late binding.
const (
	lateDuplicate = 1.0 // per token cached elsewhere
	lateQueue     = 4.0 // added per request queued on a replica
	lateRate      = 4.0 // per request for the block in the last minute, per replica
)

// Terms implements Termed: they are those of LeastWork.
func (LeastWorkLate) Terms() []string { return leastWorkTerms }

// UsesPrefix implements PrefixUser.
func (LeastWorkLate) UsesPrefix() bool { return true }

// Rank implements Policy.
func (LeastWorkLate) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	n := float64(len(v.Candidates))
	duplicate := lateDuplicate + lateQueue*float64(queued(v))/n
	return leastWork(r, v, dst, duplicate, lateRate/n, func(i int) float64 { return float64(r.Input - v.Cached(i)) })
}

var (
	_ decider.Policy     = LeastWorkLate{}
	_ decider.Termed     = LeastWorkLate{}
	_ decider.PrefixUser = LeastWorkLate{}
)
