package decider

import (
	"math/rand/v2"
	"time"

	"pointsman/decider/kvcache"
)

// Policy orders the replicas of a pool for a request. A policy belongs to one
// pool and is called with the pool locked: it may keep state of its own
// without a lock, but must not block, allocate, or keep r or v.
type Policy interface {
	// Rank appends the indexes of candidates to dst, best first. The first is
	// the decision, the next two are its fallbacks; where there are fewer, the
	// pool adds fallbacks of its own. Appending none means no opinion.
	Rank(r *Request, v *View, dst []int) []int
}

// Observer is what a Policy may also be, to follow what becomes of requests.
// The methods are called with the pool locked; replica is an index into
// View.Replicas.
type Observer interface {
	Reserved(r *Request, replica int)
	FirstToken(r *Request, replica int)
	Finished(r *Request, replica int, o Outcome)
}

// PrefixUser is implemented by policies that look at Request.Blocks. Prompts
// are hashed for their pools only.
type PrefixUser interface{ UsesPrefix() bool }

// Termed is implemented by policies that explain themselves: the names of the
// terms they set by View.SetTerm. The slice must not change.
type Termed interface{ Terms() []string }

// MemberObserver is implemented by policies that prepare something for the
// pool's replicas; Members is called, with the pool locked, when the
// membership or a weight has changed.
type MemberObserver interface{ Members(replicas []*Replica) }

// View is a pool as a policy sees it during one Rank.
type View struct {
	// Candidates are the indexes of the replicas that may be chosen, at least
	// one, in the order of the pool. It must not be changed.
	Candidates []int
	// Replicas are all replicas of the pool, whether they may be chosen or not.
	Replicas []*Replica
	// Rand is the source of chance.
	Rand *rand.Rand
	// Now is the time of the decision, by the pool's clock.
	Now time.Duration
	// BlockTokens is the number of prompt tokens in one of Request.Blocks.
	BlockTokens int

	pool      *Pool
	blocks    []uint64 // of the request
	input     int      // of the request
	depth     []int32  // per Replica.slot, leading blocks of the prompt in its image
	best      int32    // the largest of depth
	even      bool     // all weights are equal
	rate      float64  // requests for the block at rateDepth
	rateDepth int32    // -1 = not looked up for this request

	terms []float64 // per candidate, then per term
	width int       // terms a candidate
}

// Cached is the number of the prompt's tokens that the replica at index i of
// Replicas is believed to hold in its KV cache. It is 0 for all unless the
// policy is a PrefixUser.
func (v *View) Cached(i int) int {
	if len(v.depth) == 0 {
		return 0
	}
	return v.tokens(v.depth[v.Replicas[i].slot])
}

// Queue is the prefill work that the replica at index i of Replicas has before
// it, predicted: prompt tokens that it has not cached, of requests whose first
// token has not come, less what it must have done of them by now. A token deep
// in a prompt counts for more than one, as attention makes it cost more.
func (v *View) PrefillBacklog(i int) float64 { return v.pool.load.backlog(v.Replicas[i], v.Now) }

// Queued is the number of requests in that queue.
func (v *View) PrefillQueueLen(i int) int { return v.Replicas[i].prefill.n }

// Uncached is the number of prompt tokens to be computed of those requests,
// nothing taken off for time.
func (v *View) PrefillQueueTokens(i int) int { return v.Replicas[i].prefill.uncached }

// InUse is how many blocks of the cache the requests on the replica at index i
// of Replicas need, shared ones counted once; 0 unless the policy is a
// PrefixUser.
func (v *View) BlocksInUse(i int) int {
	if c := v.Replicas[i].cache; c != nil {
		return c.InUse()
	}
	return 0
}

// Shared is how many of the prompt's blocks are among those in use.
func (v *View) SharedBlocks(i int) int {
	if c := v.Replicas[i].cache; c != nil {
		return c.MatchInUse(v.blocks[:v.depth[v.Replicas[i].slot]])
	}
	return 0
}

// Work is the prefill work that the request would be on the replica at index i
// of Replicas, in the tokens of Queue.
func (v *View) PrefillCost(i int) float64 { return prefillCost(v.input-v.Cached(i), v.input) }

// Speed is the prefill speed of the replica at index i of Replicas, learned
// from first tokens, in the tokens of Queue a second.
func (v *View) PrefillSpeed(i int) float64 { return v.pool.load.speedOf(v.Replicas[i]) }

// Heat is how often, of late, requests came for the first of the prompt's
// blocks that the replica at index i of Replicas lacks: a count that falls to
// 1/e in a minute. It is 0 where no replica has that block.
func (v *View) BlockRequestRate(i int) float64 {
	if v.best == 0 {
		return 0
	}
	d := v.depth[v.Replicas[i].slot]
	if d >= v.best {
		return 0
	}
	if d != v.rateDepth {
		// Most replicas lack the same block: it is looked up once for all.
		v.rateDepth, v.rate = d, v.pool.caches.RequestRate(v.blocks[d], kvcache.Milliseconds(v.Now))
	}
	return v.rate
}

// BestCached is the largest Cached of all replicas, candidates or not.
func (v *View) BestCached() int { return v.tokens(v.best) }

// tokens is how many of the prompt's tokens its first blocks hold. The last
// one is computed whatever is cached: its result is the first output token.
func (v *View) tokens(blocks int32) int {
	return max(0, min(int(blocks)*v.BlockTokens, v.input-1))
}

// SetTerm records what a policy computed for the candidate at position c of
// Candidates, under the name at position term of Terms.
func (v *View) SetTerm(c, term int, value float64) { v.terms[c*v.width+term] = value }

// Least appends to dst the n candidates with the lowest cost, cheapest first,
// ties in random order. cost is called once a candidate with its position in
// Candidates and its replica.
func (v *View) Least(dst []int, n int, cost func(c int, r *Replica) float64) []int {
	var best [3]float64
	var ties [3]uint64
	start, found := len(dst), 0
	n = min(n, len(best))
	for c, i := range v.Candidates {
		x, tie := cost(c, v.Replicas[i]), uint64(0)
		if found == n {
			if x > best[n-1] {
				continue
			}
			tie = v.Rand.Uint64()
			if x == best[n-1] && tie >= ties[n-1] {
				continue
			}
		} else {
			tie = v.Rand.Uint64()
			dst = append(dst, 0)
			found++
		}
		pos := found - 1
		for ; pos > 0 && (x < best[pos-1] || x == best[pos-1] && tie < ties[pos-1]); pos-- {
			best[pos], ties[pos], dst[start+pos] = best[pos-1], ties[pos-1], dst[start+pos-1]
		}
		best[pos], ties[pos], dst[start+pos] = x, tie, i
	}
	return dst
}
