package decider

import (
	"math/rand/v2"
	"time"

	"pointsman/decider/kvcache"
)

// View is a pool as a policy, a scorer or a filter sees it during one decision.
// It is valid until the call returns, and lives under the pool's lock. Its methods
// take the index of a replica in Replicas and do not allocate. Estimates count
// what the pool has sent; see Signals for what engines report.
type View struct {
	// Candidates are the indexes of the replicas that may be chosen, at least
	// one, in the order of the pool. It must not be changed.
	Candidates []int
	// Replicas are all replicas of the pool, whether they may be chosen or not.
	// It must not be changed.
	Replicas []*Replica
	// Rand is the only source of randomness, so that simulations repeat.
	Rand *rand.Rand
	// Now is the time of the decision by the pool's clock.
	Now time.Duration
	// BlockTokens is the number of prompt tokens in one of Request.Blocks.
	BlockTokens int

	pool      *Pool
	blocks    []uint64       // of the request
	input     int            // of the request
	depth     []int32        // by Replica.slot: how many leading blocks of the prompt its cache holds
	best      int32          // the largest of depth
	slow      []kvcache.Slow // by slot: how many of the blocks after those are on slower tiers
	worth     []int32        // by slot: Cached, where that counts
	bestWorth int            // the largest of worth
	bestHeld  int            // the largest held
	tiered    bool           // some replica has slower tiers: the last four are set
	even      bool           // all weights are equal
	demands   [4]blockDemand // the blocks that replicas lack first, the latest of them
	lookedUp  int            // how many of those were looked up for this request
	lastRate  float64        // requests for the last block of best; -1 = not looked up for this request
	inFlight  int            // requests on all candidates; -1 = not counted for this request
	mean      float64        // of those, per candidate, at least 1
	memo      memo

	ahead []float64 // by replica index, what is held and likely to go there first

	terms []float64 // for each candidate, by term
	width int       // terms per candidate
}

// memo holds what was last computed for this request: most replicas have as much of it
// cached as the one before, so that the result is the same.
type memo struct {
	uncached     int
	cost         float64 // of so many uncached tokens
	long, length float64 // a cost, and its Length
	poolSpeed    float64 // 0 = not known
	scarce       float64 // scarcity; -1 = not known
}

// BlockBytes is the length of one of Request.Blocks in bytes of text. What is learned
// of the length of tokens does not change it.
func (v *View) BlockBytes() int {
	return v.pool.config.BlockTokens * BlockBytes / DefaultBlockTokens
}

// Cached is the number of the prompt's tokens that replica i is believed to hold in its KV
// cache. Tokens on a slower tier than the GPU count for less, by the time that their
// transfer takes compared to computing them. It is 0 unless the policy is a PrefixUser.
func (v *View) Cached(i int) int {
	if len(v.depth) == 0 {
		return 0
	}
	if v.tiered {
		return int(v.worth[v.Replicas[i].slot])
	}
	return v.tokens(v.depth[v.Replicas[i].slot])
}

// BestCached is the largest Cached of all replicas, candidates or not.
func (v *View) BestCached() int {
	if v.tiered {
		return v.bestWorth
	}
	return v.tokens(v.best)
}

// tokens is how many of the prompt's tokens its first blocks hold. The last
// token is always computed: its result is the first output token.
func (v *View) tokens(blocks int32) int {
	return max(0, min(int(blocks)*v.BlockTokens, v.input-1))
}

// PrefillBacklog is the prefill cost, in tokens, of what is predicted to be computed on
// replica i before this request: the uncached prompt tokens of requests before their
// first token, less what the replica has computed of them by now. A token deep in a
// prompt costs more than 1, because of attention.
//
// While requests are held it includes those that are likely to be sent there first.
func (v *View) PrefillBacklog(i int) float64 {
	if v.Replicas[i].prefill.n == 0 && len(v.ahead) == 0 {
		return 0
	}
	return prefillBacklog(v, i)
}

// prefillBacklog is PrefillBacklog where something may be queued. It is apart so that the
// rest is inlined.
func prefillBacklog(v *View, i int) float64 {
	x := 0.0
	if r := v.Replicas[i]; r.prefill.n > 0 {
		x = v.pool.load.backlog(r, v.Now)
	}
	if len(v.ahead) > 0 {
		x += v.ahead[i]
	}
	return x
}

// PrefillQueueLen is the number of requests in that backlog.
func (v *View) PrefillQueueLen(i int) int { return v.Replicas[i].prefill.n }

// PrefillQueueTokens is the number of uncached prompt tokens of those requests,
// with nothing subtracted for the time that has passed.
func (v *View) PrefillQueueTokens(i int) int { return v.Replicas[i].prefill.uncached }

// PrefillCost is the prefill cost of this request on replica i, in the tokens of
// PrefillBacklog.
func (v *View) PrefillCost(i int) float64 { return v.CostAfter(v.Cached(i)) }

// CostAfter is PrefillCost where that many tokens of the prompt are cached.
func (v *View) CostAfter(cached int) float64 {
	m := &v.memo
	if uncached := v.input - cached; uncached != m.uncached {
		m.uncached, m.cost = uncached, prefillCost(uncached, v.input)
	}
	return m.cost
}

// DuplicateCost is the part of PrefillCost that some other replica would not have to
// compute.
func (v *View) DuplicateCost(i int) float64 {
	return prefillCost(v.BestCached()-v.Cached(i), v.BestCached())
}

// PrefillUse is the share of the pool's prefill speed that requests ask for, 0 to 1.
func (v *View) PrefillUse() float64 { return v.pool.load.use(&v.pool.members, v.Now) }

// PrefillSpeed is the prefill speed of replica i, learned from first tokens, in
// the tokens of PrefillBacklog per second.
func (v *View) PrefillSpeed(i int) float64 {
	if v.memo.poolSpeed == 0 {
		v.memo.poolSpeed = v.pool.load.poolSpeed()
	}
	return v.Replicas[i].prefill.speedNear(v.memo.poolSpeed)
}

// BlocksInUse is how many blocks of its KV cache the requests on replica i use,
// shared ones counted once. It is 0 unless the policy is a PrefixUser.
func (v *View) BlocksInUse(i int) int {
	if c := v.Replicas[i].cache; c != nil {
		return c.InUse()
	}
	return 0
}

// SharedBlocks is how many of the prompt's blocks are among those in use.
func (v *View) SharedBlocks(i int) int {
	if c := v.Replicas[i].cache; c != nil {
		return c.MatchInUse(v.blocks[:v.depth[v.Replicas[i].slot]])
	}
	return 0
}

// SessionReplica is the replica that the request's session was sent to last, nil
// if that is unknown. The pool remembers sessions for a SessionUser only.
func (v *View) SessionReplica(r *Request) *Replica { return v.pool.sessions.last(r) }

// SetTerm records what a policy computed for the candidate at position c of
// Candidates, under the name at position term of Terms.
func (v *View) SetTerm(c, term int, value float64) { v.terms[c*v.width+term] = value }

// Row returns the terms of the candidate at position c, in the order of Terms, for a policy
// that sets all of them.
func (v *View) Row(c int) []float64 { return v.terms[c*v.width : (c+1)*v.width] }

// matchPrefix looks up how much of the request's prompt the cache of each replica holds.
func (v *View) matchPrefix(r *Request) {
	v.input, v.blocks, v.lookedUp, v.lastRate, v.inFlight = r.Input, r.Blocks, 0, -1, -1
	v.memo = memo{scarce: -1} // no tokens cost 0, and a cost of 0 has the length 0
	v.tiered = false
	switch m := v.pool.caches.model; {
	case m == nil:
	case m.Tiered():
		v.tiered = true
		v.matchTiers(r, m)
	default:
		v.depth, v.best = m.Match(r.Blocks, v.depth)
	}
}

// resetTerms makes room for width terms of each candidate.
func resetTerms(v *View, width int) {
	if v.width = width; width == 0 {
		return
	}
	need := width * len(v.Candidates)
	if cap(v.terms) < need {
		v.terms = make([]float64, 2*need)
	}
	v.terms = v.terms[:need]
}
