package decider

import (
	"math"

	"pointsman/decider/kvcache"
)

// tierSpeeds learns how fast blocks are copied to the GPU from each tier below it, for all
// replicas together. It lives under the pool's lock.
type tierSpeeds [kvcache.Slower]rateEstimator

// initialTransfer is the speed, in tokens/s, that a tier starts from: of host memory,
// about a third of what a link of 16 GB/s moves at 50 KB a token; of storage, a fifth of that.
var initialTransfer = [kvcache.Slower]float64{100_000, 20_000}

// SlowTiers are the names of the tiers below the GPU, in the order of
// PoolStats.SlowTokens.
func SlowTiers() [kvcache.Slower]string {
	return [...]string{kvcache.CPU.String(), kvcache.Disk.String()}
}

const (
	// transferPrior is how many seconds of transfers initialTransfer counts for.
	transferPrior = 2.0
	// transferRange bounds what is learned to multiples and parts of initialTransfer.
	transferRange = 100
	// transferSample is the least number of tokens to learn from: other things dominate the
	// time of fewer.
	transferSample = 1024
)

// of is the speed of the tier at position k, in tokens/s.
func (t *tierSpeeds) of(k int) float64 {
	e, prior := &t[k], initialTransfer[k]
	x := (e.amount + transferPrior*prior) / (e.seconds + transferPrior)
	return min(max(x, prior/transferRange), prior*transferRange)
}

// seconds is how long so many tokens of each tier take.
func (t *tierSpeeds) seconds(tokens [kvcache.Slower]int) (sum float64) {
	for k, n := range tokens {
		if n > 0 {
			sum += float64(n) / t.of(k)
		}
	}
	return sum
}

// slowTokens returns how many of a prompt's tokens are on each slower tier, behind gpu
// blocks on the GPU. The last token of a prompt is always computed.
func slowTokens(input, gpu int, slow kvcache.Slow, blockTokens int) (tokens [kvcache.Slower]int) {
	from := min(gpu*blockTokens, input-1)
	for k, n := range slow {
		tokens[k] = max(0, min(int(n)*blockTokens, input-1-from))
		from += tokens[k]
	}
	return tokens
}

// worth converts blocks on all tiers to tokens on the GPU: with that many there, r would be
// done with the prompt as soon. Blocks on slower tiers need not be computed, but copying
// them takes a while.
func (l *loadEstimate) worth(r *Replica, input, gpu int, slow kvcache.Slow, blockTokens int) int {
	fast := max(0, min(gpu*blockTokens, input-1))
	if slow == (kvcache.Slow{}) || input < 2 {
		return fast
	}
	tokens := slowTokens(input, gpu, slow, blockTokens)
	left := input - fast
	for _, n := range tokens {
		left -= n
	}
	cost := prefillCost(left, input) + l.tiers.seconds(tokens)*l.speedOf(r)
	return max(0, input-int(math.Ceil(uncachedFor(cost, input))))
}

// uncachedFor returns how many of the last tokens of input have that cost: the inverse of
// prefillCost, at most input.
func uncachedFor(cost float64, input int) float64 {
	a := attentionDepth + float64(input)
	d := a*a - 2*attentionDepth*cost
	if d <= 0 {
		return float64(input)
	}
	return min(a-math.Sqrt(d), float64(input))
}

// learnTransfer learns from v, which had its first token seconds after it was sent, if it
// waited mostly for a transfer. It reports whether that is so: then the time says nothing
// about the prefill speed. alone means that nothing else was computed there in that time.
func (l *loadEstimate) learnTransfer(v *reservation, seconds float64, alone bool) bool {
	if v.slow == ([kvcache.Slower]int{}) {
		return false
	}
	speed := l.speedOf(v.replica)
	if l.tiers.seconds(v.slow)*speed < v.prefill.cost/2 {
		return false
	}
	k := 0
	for j, n := range v.slow {
		if float64(n)/l.tiers.of(j) > float64(v.slow[k])/l.tiers.of(k) {
			k = j
		}
	}
	if n := v.slow[k]; alone && n >= transferSample {
		expected := l.tiers.of(k)
		others := max(0, v.prefill.cost/speed-float64(n)/expected)
		l.tiers[k].add(float64(n), max(0, seconds-others), expected)
	}
	return true
}

// matchTiers is matchPrefix where some replica has blocks on a slower tier.
func (v *View) matchTiers(r *Request, m *kvcache.Model) {
	v.depth, v.best, v.slow = m.MatchTiers(r.Blocks, v.depth, v.slow)
	if cap(v.worth) < len(v.depth) {
		v.worth = make([]int32, len(v.depth))
	}
	v.worth, v.bestWorth, v.bestHeld = v.worth[:len(v.depth)], 0, 0
	for i, replica := range v.Replicas {
		s := replica.slot
		w := v.pool.load.worth(replica, v.input, int(v.depth[s]), v.slow[s], v.BlockTokens)
		v.worth[s] = int32(w)
		v.bestWorth, v.bestHeld = max(v.bestWorth, w), max(v.bestHeld, v.held(i))
	}
}

// held is the number of the prompt's tokens that replica i is believed to hold on any
// tier.
func (v *View) held(i int) int {
	if !v.tiered {
		return v.Cached(i)
	}
	s := v.Replicas[i].slot
	return v.tokens(v.depth[s] + v.slow[s].Sum())
}

// mostHeld is the largest held of all replicas.
func (v *View) mostHeld() int {
	if !v.tiered {
		return v.BestCached()
	}
	return v.bestHeld
}

// heldSlow is how many of held are on each slower tier.
func (v *View) heldSlow(i int) (tokens [kvcache.Slower]int) {
	if v.tiered {
		s := v.Replicas[i].slot
		tokens = slowTokens(v.input, int(v.depth[s]), v.slow[s], v.BlockTokens)
	}
	return tokens
}
