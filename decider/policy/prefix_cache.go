package policy

import (
	"errors"
	"math"

	"pointsman/decider"
)

// PrefixCache sends a request to the replica that was sent most of its prompt
// before, among those whose load is not far above the mean. While loads differ too
// much, it sends it to the least loaded. It is AIBrix's prefix-cache with the same
// thresholds. Ties are broken at random.
type PrefixCache struct {
	PrefixCacheOptions
	routed
}

// PrefixCacheOptions are the options of PrefixCache.
type PrefixCacheOptions struct {
	// ImbalanceCount is the difference between the most and the fewest
	// requests in flight above which prefixes do not count.
	ImbalanceCount int `yaml:"imbalance_count" help:"difference in requests in flight above which prefixes do not count"`
	// StandardDeviations is how far above the mean the requests in flight of a
	// replica may be for its prefixes to count.
	StandardDeviations float64 `yaml:"standard_deviations" help:"standard deviations above the mean that a load may be, 0 or more"`
}

// PrefixCacheDefaults are the defaults of AIBrix.
var PrefixCacheDefaults = PrefixCacheOptions{ImbalanceCount: 8, StandardDeviations: 1}

// Validate returns an error that names the option at fault.
func (o PrefixCacheOptions) Validate() error {
	switch {
	case o.ImbalanceCount < 0:
		return errors.New("imbalance_count: want requests, 0 or more")
	case !(o.StandardDeviations >= 0):
		return errors.New("standard_deviations: want a number, 0 or more")
	}
	return nil
}

// NewPrefixCache returns a PrefixCache, or the error of o.Validate.
func NewPrefixCache(o PrefixCacheOptions) (*PrefixCache, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &PrefixCache{PrefixCacheOptions: o, routed: routed{capacity: routedBlocks}}, nil
}

var prefixCacheTerms = []string{"match_rate", "load", "bound"}

// Terms implements Termed: match_rate is the share of the prompt that the replica
// was sent before, load its requests in flight, and bound the most that load may
// be.
func (*PrefixCache) Terms() []string { return prefixCacheTerms }

// Rank implements Policy.
func (p *PrefixCache) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	p.matchPrefix(r)
	sum, squares := 0.0, 0.0
	for _, i := range v.Candidates {
		x := float64(v.Replicas[i].InFlight())
		sum, squares = sum+x, squares+x*x
	}
	n := float64(len(v.Candidates))
	mean := sum / n
	bound := mean + p.StandardDeviations*math.Sqrt(max(0, squares/n-mean*mean))
	least, most := v.InFlightRange()
	balanced := most-least <= p.ImbalanceCount
	return v.Least(dst, 3, func(c int, replica *decider.Replica) float64 {
		d, load := p.matched(replica), float64(replica.InFlight())
		v.SetTerm(c, 0, p.rate(r, v, d))
		v.SetTerm(c, 1, load)
		v.SetTerm(c, 2, bound)
		switch {
		case !balanced:
			return load
		case d == 0 || load > bound:
			return penalty + load
		}
		// The match counts first, then the load.
		return load - float64(d)*(float64(most)+1)
	})
}

var (
	_ decider.Policy = (*PrefixCache)(nil)
	_ decider.Termed = (*PrefixCache)(nil)
)
