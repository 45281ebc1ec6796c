package policy

import (
	"errors"
	"math"
	"time"

	"pointsman/decider"
)

// PrefixAffinity sends a request to the replica that was sent most of its prompt
// before, or to the least loaded of equal ones. It is Ray Serve's prefix-cache-aware
// router with the same options and defaults. It follows what was sent, not what engines
// still hold. Two things differ: what it remembers of a replica is bounded even without
// do_eviction, and it learns which replica really served. Choose it if you come from
// Ray.
type PrefixAffinity struct {
	PrefixAffinityOptions
	routed
	evicted time.Duration // when it last evicted
	two     PowerOfTwo
}

// PrefixAffinityOptions are the options of PrefixAffinity, named as in Ray.
type PrefixAffinityOptions struct {
	// ImbalancedThreshold is the difference between the most and the fewest
	// requests in flight above which PowerOfTwo chooses; .inf = never.
	ImbalancedThreshold float64 `yaml:"imbalanced_threshold" help:"difference in requests in flight; Ray's guides set 10"`
	// MatchRateThreshold is the share of the prompt, 0 to 1, below which the
	// request goes to the replica that was sent the least.
	MatchRateThreshold float64 `yaml:"match_rate_threshold" help:"share of the prompt below which prefixes do not count, 0 to 1"`
	// DoEviction checks every EvictionIntervalSecs which replicas were sent
	// more than EvictionThresholdChars, and forgets the least recent of it down
	// to EvictionTargetChars.
	DoEviction             bool    `yaml:"do_eviction" help:"forget the oldest prompts of a replica that was sent too much"`
	EvictionThresholdChars int     `yaml:"eviction_threshold_chars" help:"characters above which it forgets"`
	EvictionTargetChars    int     `yaml:"eviction_target_chars" help:"characters down to which it forgets"`
	EvictionIntervalSecs   float64 `yaml:"eviction_interval_secs" help:"seconds between two checks"`
}

// PrefixAffinityDefaults are the defaults of Ray.
var PrefixAffinityDefaults = PrefixAffinityOptions{
	ImbalancedThreshold: math.Inf(1), MatchRateThreshold: 0.1,
	EvictionThresholdChars: 400_000, EvictionTargetChars: 360_000, EvictionIntervalSecs: 10,
}

// Validate returns an error that names the option at fault.
func (o PrefixAffinityOptions) Validate() error {
	switch {
	case !(o.ImbalancedThreshold >= 0):
		return errors.New("imbalanced_threshold: want requests, 0 or more")
	case !(o.MatchRateThreshold >= 0 && o.MatchRateThreshold <= 1):
		return errors.New("match_rate_threshold: want a share from 0 to 1")
	case o.EvictionThresholdChars < 1:
		return errors.New("eviction_threshold_chars: want characters above 0")
	case o.EvictionTargetChars < 0 || o.EvictionTargetChars > o.EvictionThresholdChars:
		return errors.New("eviction_target_chars: want characters, not more than eviction_threshold_chars")
	case !(o.EvictionIntervalSecs > 0):
		return errors.New("eviction_interval_secs: want seconds above 0")
	}
	return nil
}

// NewPrefixAffinity returns a PrefixAffinity, or the error of o.Validate.
func NewPrefixAffinity(o PrefixAffinityOptions) (*PrefixAffinity, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &PrefixAffinity{PrefixAffinityOptions: o, routed: routed{capacity: routedBlocks}}, nil
}

var prefixAffinityTerms = []string{"match_rate", "sent_blocks"}

// Terms implements Termed: match_rate is the share of the prompt that the replica
// was sent before, sent_blocks how many blocks it was sent in all.
func (*PrefixAffinity) Terms() []string { return prefixAffinityTerms }

// Rank implements Policy.
func (p *PrefixAffinity) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	p.evict(v)
	p.matchPrefix(r)
	best := int32(0)
	for c, i := range v.Candidates {
		replica := v.Replicas[i]
		d := p.matched(replica)
		best = max(best, d)
		v.SetTerm(c, 0, p.rate(r, v, d))
		v.SetTerm(c, 1, float64(p.size(replica)))
	}
	least, most := v.InFlightRange()
	if float64(most-least) > p.ImbalancedThreshold || len(r.Blocks) == 0 {
		return p.two.Rank(r, v, dst)
	}
	if p.rate(r, v, best) < p.MatchRateThreshold {
		return v.Least(dst, 3, func(_ int, replica *decider.Replica) float64 { return float64(p.size(replica)) })
	}
	return v.Least(dst, 3, func(_ int, replica *decider.Replica) float64 {
		if p.matched(replica) < best {
			return penalty + replica.Load()
		}
		return replica.Load()
	})
}

// evict forgets what is above the threshold, if the interval has passed.
func (p *PrefixAffinity) evict(v *decider.View) {
	if !p.DoEviction || (v.Now-p.evicted).Seconds() < p.EvictionIntervalSecs {
		return
	}
	p.evicted = v.Now
	blockChars := v.BlockBytes()
	for _, r := range p.list {
		if m := p.of(r); m.Len()*blockChars > p.EvictionThresholdChars {
			m.Shrink(p.EvictionTargetChars / blockChars)
		}
	}
}

var (
	_ decider.Policy = (*PrefixAffinity)(nil)
	_ decider.Termed = (*PrefixAffinity)(nil)
)
