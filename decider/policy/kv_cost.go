package policy

import (
	"errors"
	"fmt"

	"pointsman/decider"
)

// KVCost sends a request to the replica with the fewest tokens to compute and
// blocks in use together. It is the cost of NVIDIA Dynamo's router, at
// temperature 0:
//
//	cost = scale · max(0, tokens in prefill + own − credit · cached) / block
//	     + blocks in use + weight · requests in flight
//
// The blocks in use include the request's own, and shared ones count once. Ties
// are broken at random. Choose it to compare with Dynamo.
type KVCost struct{ KVCostOptions }

// KVCostOptions are the options of KVCost, named as in Dynamo.
type KVCostOptions struct {
	// PrefillLoadScale is the cost of a block to compute; a block in use costs 1.
	PrefillLoadScale float64 `yaml:"prefill_load_scale" help:"cost of a block to compute; a block in use costs 1"`
	// OverlapCredit is the share of the cached tokens that is subtracted; more
	// than 1 is a bonus.
	OverlapCredit float64 `yaml:"overlap_credit" help:"share of the cached tokens that is subtracted; more than 1 is a bonus"`
	// OverlapCreditDecay reduces the credit of a replica that has more tokens in
	// prefill than the candidate with the fewest: it is divided by 1 plus this
	// times the difference in multiples of the prompt.
	OverlapCreditDecay float64 `yaml:"overlap_credit_decay" help:"reduces the credit of busy replicas: it is divided by 1 + this · the tokens in prefill above those of the least busy candidate / the tokens of the prompt"`
	// ActiveRequestWeight is the cost of a request in flight, in blocks of 16
	// tokens.
	ActiveRequestWeight float64 `yaml:"active_request_weight" help:"cost of a request in flight, in blocks of 16 tokens; Dynamo's decode_active_request_weight"`
	// Preset sets the other options: agentic is Dynamo's --agentic. As there, it
	// takes precedence over them.
	Preset string `yaml:"preset" help:"agentic, Dynamo's --agentic: credit 2, scale 4, weight 64. It takes precedence over these three options, as in Dynamo"`
}

// KVCostDefaults are the defaults of Dynamo.
var KVCostDefaults = KVCostOptions{PrefillLoadScale: 1, OverlapCredit: 1}

// dynamoBlockTokens is the block of Dynamo's weights.
const dynamoBlockTokens = 16

// Validate returns an error that names the option at fault.
func (o KVCostOptions) Validate() error {
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"prefill_load_scale", o.PrefillLoadScale},
		{"overlap_credit", o.OverlapCredit},
		{"overlap_credit_decay", o.OverlapCreditDecay},
		{"active_request_weight", o.ActiveRequestWeight},
	} {
		if !(f.value >= 0 && f.value <= 1e6) {
			return fmt.Errorf("%s: want a factor, 0 to 1000000", f.name)
		}
	}
	if o.Preset != "" && o.Preset != "agentic" {
		return errors.New("preset: want agentic, or none")
	}
	return nil
}

// NewKVCost returns a KVCost, or the error of o.Validate.
func NewKVCost(o KVCostOptions) (*KVCost, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Preset == "agentic" {
		o.PrefillLoadScale, o.OverlapCredit, o.ActiveRequestWeight = 4, 2, 64
	}
	return &KVCost{o}, nil
}

var kvCostTerms = []string{"prefill_blocks", "blocks_in_use", "requests", "cost"}

// Terms implements Termed, in blocks.
func (*KVCost) Terms() []string { return kvCostTerms }

// UsesPrefix implements PrefixUser.
func (*KVCost) UsesPrefix() bool { return true }

// Rank implements Policy.
func (p *KVCost) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	block := float64(v.BlockTokens)
	least := 0
	if p.OverlapCreditDecay > 0 {
		least = v.PrefillQueueTokens(v.Candidates[0])
		for _, i := range v.Candidates[1:] {
			least = min(least, v.PrefillQueueTokens(i))
		}
	}
	return v.Least(dst, 3, func(c int, replica *decider.Replica) float64 {
		i := v.Candidates[c]
		credit := p.OverlapCredit
		if p.OverlapCreditDecay > 0 {
			credit /= 1 + p.OverlapCreditDecay*float64(v.PrefillQueueTokens(i)-least)/float64(max(r.Input, 1))
		}
		prefill := max(0, (float64(v.PrefillQueueTokens(i)+r.Input)-credit*float64(v.Cached(i)))/block)
		inUse := float64(v.BlocksInUse(i)) + max(0, float64(r.Input)/block-float64(v.SharedBlocks(i)))
		requests := p.ActiveRequestWeight * dynamoBlockTokens / block * float64(replica.InFlight())
		cost := p.PrefillLoadScale*prefill + inUse + requests
		v.SetTerm(c, 0, prefill)
		v.SetTerm(c, 1, inUse)
		v.SetTerm(c, 2, requests)
		v.SetTerm(c, 3, cost)
		return cost
	})
}

var (
	_ decider.Policy     = (*KVCost)(nil)
	_ decider.Termed     = (*KVCost)(nil)
	_ decider.PrefixUser = (*KVCost)(nil)
)
