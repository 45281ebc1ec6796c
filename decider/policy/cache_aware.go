package policy

import (
	"errors"

	"pointsman/decider"
)

// CacheAware sends a request to the replica that was sent most of its prompt
// before, if that is enough of it. While the pool is out of balance, it sends it
// to the replica with the fewest requests in flight. It is the policy of SGLang's
// gateway, with the same options and defaults; vLLM's router has the same policy
// with the defaults 0.5, 32 and 1.1. Ties are broken at random.
type CacheAware struct {
	CacheAwareOptions
	routed
}

// CacheAwareOptions are the options of CacheAware, named as in SGLang.
type CacheAwareOptions struct {
	// CacheThreshold is the share of the prompt, 0 to 1, above which a request
	// goes to the replica that was sent that share before.
	CacheThreshold float64 `yaml:"cache_threshold" help:"share of the prompt above which prefixes decide, 0 to 1"`
	// The pool is out of balance when the most requests in flight exceed the
	// fewest by more than BalanceAbsThreshold, and are more than
	// BalanceRelThreshold times as many.
	BalanceAbsThreshold int     `yaml:"balance_abs_threshold" help:"difference in requests in flight"`
	BalanceRelThreshold float64 `yaml:"balance_rel_threshold" help:"factor, 1 or more"`
	// MaxTreeSize is how many characters of the prompts sent to a replica are
	// remembered.
	MaxTreeSize int `yaml:"max_tree_size" help:"characters of prompts remembered per replica"`
}

// CacheAwareDefaults are the defaults of SGLang.
var CacheAwareDefaults = CacheAwareOptions{
	CacheThreshold: 0.3, BalanceAbsThreshold: 64, BalanceRelThreshold: 1.5, MaxTreeSize: 1 << 26,
}

// Validate returns an error that names the option at fault.
func (o CacheAwareOptions) Validate() error {
	switch {
	case !(o.CacheThreshold >= 0 && o.CacheThreshold <= 1):
		return errors.New("cache_threshold: want a share from 0 to 1")
	case o.BalanceAbsThreshold < 0:
		return errors.New("balance_abs_threshold: want requests, 0 or more")
	case !(o.BalanceRelThreshold >= 1):
		return errors.New("balance_rel_threshold: want a factor of 1 or more")
	case o.MaxTreeSize < decider.BlockBytes:
		return errors.New("max_tree_size: want characters, 1024 or more")
	}
	return nil
}

// NewCacheAware returns a CacheAware, or the error of o.Validate.
func NewCacheAware(o CacheAwareOptions) (*CacheAware, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &CacheAware{CacheAwareOptions: o, routed: routed{capacity: min(o.MaxTreeSize/decider.BlockBytes, routedBlocks)}}, nil
}

var cacheAwareTerms = []string{"match_rate", "sent_blocks"}

// Terms implements Termed: match_rate is the share of the prompt that the replica
// was sent before, sent_blocks how many blocks it was sent in all.
func (*CacheAware) Terms() []string { return cacheAwareTerms }

// Rank implements Policy.
func (p *CacheAware) Rank(r *decider.Request, v *decider.View, dst []int) []int {
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
	if most-least > p.BalanceAbsThreshold && float64(most) > p.BalanceRelThreshold*float64(least) {
		return v.Least(dst, 3, func(_ int, replica *decider.Replica) float64 { return replica.Load() })
	}
	if p.rate(r, v, best) <= p.CacheThreshold {
		return v.Least(dst, 3, func(_ int, replica *decider.Replica) float64 { return float64(p.size(replica)) })
	}
	return v.Least(dst, 3, func(_ int, replica *decider.Replica) float64 { return -float64(p.matched(replica)) })
}

var (
	_ decider.Policy = (*CacheAware)(nil)
	_ decider.Termed = (*CacheAware)(nil)
)
