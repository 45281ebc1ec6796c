package policy

import "pointsman/decider"

// LeastWork sends a request to the replica with the least predicted work until
// its first token: the backlog there, and the part of the prompt that is not
// cached there. Duplicating a prefix is penalised, more so under load, unless
// the prefix is requested so often that several replicas should hold it. It needs
// no more than what the proxy reports, and is the default. Choose another policy
// if requests have no prompts, or all cost the same. Weights do not count: the
// speed of a replica is learned.
//
//	cost = queue + own + (3+4n)/(1+12h/N) · duplicate + 0.02 · in flight + pressure
//
// in tokens, divided by the prefill speed of the replica. n is the number of
// requests before their first token per replica, h the block request rate above 1
// of the first block that the replica lacks, and N the number of replicas.
type LeastWork struct{}

// The weights of the terms in early binding, when a request is sent at once.
// docs/decisions/0004-least-work.md says how they were found.
const (
	workDuplicate = 3.0  // per token cached elsewhere: a duplicate takes the space of other blocks
	workQueue     = 4.0  // added per request queued on a replica
	workRate      = 12.0 // per request for the block in the last minute, per replica
	workInFlight  = 0.02 // per input token in flight: it slows the decoding of others
	workMemory    = 0.95 // share of the cache that may be in use before it evicts what is needed
)

var leastWorkTerms = []string{"queue", "own", "duplicate", "in_flight", "pressure", "speed", "cost"}

// Terms implements Termed: queue to pressure are summands in tokens, speed is in
// tokens/s, and cost in seconds.
func (LeastWork) Terms() []string { return leastWorkTerms }

// UsesPrefix implements PrefixUser.
func (LeastWork) UsesPrefix() bool { return true }

// Rank implements Policy.
func (LeastWork) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	n := float64(len(v.Candidates))
	return leastWork(r, v, dst, workDuplicate+workQueue*float64(queued(v))/n, workRate/n, v.PrefillCost)
}

// queued is the number of requests before their first token on all candidates.
func queued(v *decider.View) (n int) {
	for _, i := range v.Candidates {
		n += v.PrefillQueueLen(i)
	}
	return n
}

// ownRate is the block request rate that a conversation causes by itself, by its
// last turn. Its return does not mean that another replica needs the prefix.
const ownRate = 1.0

// leastWork ranks by least work. own is the request's own work on a replica. A
// token that is cached elsewhere costs duplicate, divided by 1 plus demand times
// the rate at which others request it.
func leastWork(r *decider.Request, v *decider.View, dst []int, duplicate, demand float64, own func(i int) float64) []int {
	best := v.BestCached()
	mine := r.Input + max(r.Output, 0)
	return v.Least(dst, 3, func(c int, replica *decider.Replica) float64 {
		i := v.Candidates[c]
		queue, work, speed := v.PrefillBacklog(i), own(i), v.PrefillSpeed(i)
		duplicated := 0.0
		if lacks := best - v.Cached(i); lacks > 0 {
			duplicated = duplicate / (1 + demand*max(0, v.BlockRequestRate(i)-ownRate)) * float64(lacks)
		}
		inFlight := workInFlight * float64(replica.InputTokens())
		// Shared blocks take space once; the output is still to come.
		needed := (v.BlocksInUse(i)-v.SharedBlocks(i))*v.BlockTokens + replica.Tokens() - replica.InputTokens()
		pressure := max(0, float64(needed+mine)-workMemory*float64(replica.CacheTokens()))
		cost := (queue + work + duplicated + inFlight + pressure) / speed
		for t, x := range [...]float64{queue, work, duplicated, inFlight, pressure, speed, cost} {
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
