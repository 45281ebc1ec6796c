package policy

import "pointsman/decider"

// LeastWorkLate is LeastWork for requests that are held until a replica has
// room for them, which an Admission with Hold does. What is chosen late is
// chosen with the queues almost empty, so other weights suit it than
// early binding, and the position of a token does not matter. Choose it
// where the proxy can wait for its answer: HAProxy from 3.0 on, and nginx.
type LeastWorkLate struct{}

// What the terms weigh in late binding.
const (
	lateCopy  = 1.0 // of a token cached elsewhere
	lateQueue = 4.0 // of one, per request queued on a replica
	lateHeat  = 4.0 // of a request for it in the last minute, per replica
)

// Terms implements Termed, as LeastWork does.
func (LeastWorkLate) Terms() []string { return leastWorkTerms }

// UsesPrefix implements PrefixUser.
func (LeastWorkLate) UsesPrefix() bool { return true }

// Rank implements Policy.
func (LeastWorkLate) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	n := float64(len(v.Candidates))
	dearness := lateCopy + lateQueue*float64(queued(v))/n
	return leastWork(r, v, dst, dearness, lateHeat/n, func(i int) float64 { return float64(r.Input - v.Cached(i)) })
}

var (
	_ decider.Policy     = LeastWorkLate{}
	_ decider.Termed     = LeastWorkLate{}
	_ decider.PrefixUser = LeastWorkLate{}
)
