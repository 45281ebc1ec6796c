package policy

import "pointsman/decider"

// LeastWork sends a request where the predicted work until its first token is
// least: what is queued there, and what of its own prompt is not cached there.
// Keeping copies of a prefix few is worth waiting for, the more the busier the
// pool is, until the prefix is asked for so often that it should spread. It
// needs nothing but what the proxy tells, and is the default: choose another
// one when requests have no prompts, or all cost the same. Weights do not count:
// how fast a replica is shows by itself.
//
//	cost = queue + own + (3+4n)/(1+12h/N) · duplicate + 0.02 · in flight + pressure
//
// in tokens, over the learned prefill speed of the replica, with n the requests
// before their first token per replica, h the heat above 1 of the first block
// that the replica lacks, and N the number of replicas.
type LeastWork struct{}

// What the terms weigh in early binding, that is, when a request is sent at
// once; docs/decisions/0004-least-work.md tells how they were found.
const (
	workRoom     = 3.0  // of a token cached elsewhere: a copy takes another one's room
	workCopy     = 4.0  // of the same, per request queued on a replica
	workHeat     = 12.0 // of a request for it in the last minute, per replica
	workInFlight = 0.02 // of an input token in flight: it slows the others' decoding
	workMemory   = 0.95 // of the cache may be in use before more is pressed out
)

var leastWorkTerms = []string{"queue", "own", "duplicate", "in_flight", "pressure", "speed", "cost"}

// Terms implements Termed: queue to pressure are the summands in tokens, speed
// is in tokens/s, and cost in seconds.
func (LeastWork) Terms() []string { return leastWorkTerms }

// UsesPrefix implements PrefixUser.
func (LeastWork) UsesPrefix() bool { return true }

// Rank implements Policy.
func (LeastWork) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	n := float64(len(v.Candidates))
	return leastWork(r, v, dst, workRoom+workCopy*float64(queued(v))/n, workHeat/n, v.PrefillCost)
}

// queued is the number of requests before their first token on all candidates.
func queued(v *decider.View) (n int) {
	for _, i := range v.Candidates {
		n += v.PrefillQueueLen(i)
	}
	return n
}

// ownHeat is what a prefix has of the talk alone that it belongs to: its last
// turn. That it comes back does not mean that another replica needs it too.
const ownHeat = 1.0

// leastWork ranks by least work, of which work tells a replica's own part. A
// token cached elsewhere costs dearness, less by heat times how often others ask
// for it.
func leastWork(r *decider.Request, v *decider.View, dst []int, dearness, heat float64, work func(i int) float64) []int {
	best := v.BestCached()
	mine := r.Input + max(r.Output, 0)
	return v.Least(dst, 3, func(c int, replica *decider.Replica) float64 {
		i := v.Candidates[c]
		queue, own, speed := v.PrefillBacklog(i), work(i), v.PrefillSpeed(i)
		duplicate := 0.0
		if lacks := best - v.Cached(i); lacks > 0 {
			duplicate = dearness / (1 + heat*max(0, v.BlockRequestRate(i)-ownHeat)) * float64(lacks)
		}
		inFlight := workInFlight * float64(replica.InputTokens())
		// What requests share takes room once; their output is still to come.
		held := (v.BlocksInUse(i)-v.SharedBlocks(i))*v.BlockTokens + replica.Tokens() - replica.InputTokens()
		pressure := max(0, float64(held+mine)-workMemory*float64(replica.CacheTokens()))
		cost := (queue + own + duplicate + inFlight + pressure) / speed
		for t, x := range [...]float64{queue, own, duplicate, inFlight, pressure, speed, cost} {
			v.SetTerm(c, t, x)
		}
		return cost
	})
}

var (
	_ decider.Policy     = LeastWork{}
	_ decider.Termed     = LeastWork{}
	_ decider.PrefixUser = LeastWork{}
)
