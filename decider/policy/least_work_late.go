package policy

import "pointsman/decider"

// LeastWorkLate is LeastWork for requests that are held until a replica has
// capacity, which an Admission with Hold does. At that time the queues are almost
// empty, so the weights differ from those of early binding. The position of a token in the
// prompt does not matter, but where a request would compute again what another replica has
// and nobody else asks for. Choose it where the proxy can wait for the
// answer: HAProxy from 3.0 on, and nginx.
type LeastWorkLate struct{}

// late are the weights in late binding.
var late = weights{late: true, queue: 3, blocking: decider.LateBlocking, spared: decider.LateSpared}

// Terms implements Termed: they are those of LeastWork.
func (LeastWorkLate) Terms() []string { return leastWorkTerms }

// UsesPrefix implements PrefixUser.
func (LeastWorkLate) UsesPrefix() bool { return true }

// Rank implements Policy.
func (LeastWorkLate) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	return leastWork(r, v, dst, &late)
}

var (
	_ decider.Policy     = LeastWorkLate{}
	_ decider.Termed     = LeastWorkLate{}
	_ decider.PrefixUser = LeastWorkLate{}
)
