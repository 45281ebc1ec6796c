package policy

import (
	"errors"

	"pointsman/decider"
)

// KVCost sends a request to the replica with the fewest tokens to compute and
// blocks in use together. It is the cost of NVIDIA Dynamo's router, at
// temperature 0:
//
//	cost = scale · (tokens in prefill + own − credit · cached) / block + blocks in use
//
// The blocks in use include the request's own, and shared ones count once. Ties
// are broken at random. Choose it to compare with Dynamo.
type KVCost struct{ KVCostOptions }

// KVCostOptions are the options of KVCost, named as in Dynamo.
type KVCostOptions struct {
	// PrefillLoadScale is the cost of a block to compute; a block in use costs 1.
	PrefillLoadScale float64 `yaml:"prefill_load_scale"`
	// OverlapCredit is the share of the cached tokens that is subtracted.
	OverlapCredit float64 `yaml:"overlap_credit"`
}

// KVCostDefaults are the defaults of Dynamo.
var KVCostDefaults = KVCostOptions{PrefillLoadScale: 1, OverlapCredit: 1}

// Validate returns an error that names the option at fault.
func (o KVCostOptions) Validate() error {
	switch {
	case !(o.PrefillLoadScale >= 0):
		return errors.New("prefill_load_scale: want a factor, 0 or more")
	case !(o.OverlapCredit >= 0):
		return errors.New("overlap_credit: want a factor, 0 or more")
	}
	return nil
}

// NewKVCost returns a KVCost, or the error of o.Validate.
func NewKVCost(o KVCostOptions) (*KVCost, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &KVCost{o}, nil
}

var kvCostTerms = []string{"prefill_blocks", "blocks_in_use", "cost"}

// Terms implements Termed, in blocks.
func (*KVCost) Terms() []string { return kvCostTerms }

// UsesPrefix implements PrefixUser.
func (*KVCost) UsesPrefix() bool { return true }

// Rank implements Policy.
func (p *KVCost) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	block := float64(v.BlockTokens)
	return v.Least(dst, 3, func(c int, _ *decider.Replica) float64 {
		i := v.Candidates[c]
		prefill := max(0, (float64(v.PrefillQueueTokens(i)+r.Input)-p.OverlapCredit*float64(v.Cached(i)))/block)
		inUse := float64(v.BlocksInUse(i)) + max(0, float64(r.Input)/block-float64(v.SharedBlocks(i)))
		cost := p.PrefillLoadScale*prefill + inUse
		v.SetTerm(c, 0, prefill)
		v.SetTerm(c, 1, inUse)
		v.SetTerm(c, 2, cost)
		return cost
	})
}

var (
	_ decider.Policy     = (*KVCost)(nil)
	_ decider.Termed     = (*KVCost)(nil)
	_ decider.PrefixUser = (*KVCost)(nil)
)
