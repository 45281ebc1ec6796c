package policy

import (
	"fmt"
	"math"

	"pointsman/decider"
)

// PredictedLatency sends a request to the replica with the lowest predicted time
// to first token: the backlog there and the part of the prompt that is not
// cached there, at the replica's learned speed. llm-d's predicted-latency routing
// decides like this, with a trained model as predictor. Choose it to compare
// with llm-d.
type PredictedLatency struct {
	random bool
	costs  []float64 // scratch, by position in Candidates
}

// PredictedLatencyOptions are the options of PredictedLatency.
type PredictedLatencyOptions struct {
	// Picker is max, which takes the lowest prediction, ties at random, or
	// weighted_random, which draws a replica in proportion to its score: 1 for
	// the lowest prediction, 0 for the highest.
	Picker string `yaml:"picker" help:"max: the lowest prediction, ties at random. weighted_random, which llm-d's guide uses: a replica is drawn in proportion to its score, which is 1 for the lowest prediction and 0 for the highest"`
}

// PredictedLatencyDefaults are the defaults of PredictedLatency.
var PredictedLatencyDefaults = PredictedLatencyOptions{Picker: "max"}

// Validate returns an error that names the option at fault.
func (o PredictedLatencyOptions) Validate() error {
	if o.Picker != "max" && o.Picker != "weighted_random" {
		return fmt.Errorf("picker: unknown %.40q; want max or weighted_random", o.Picker)
	}
	return nil
}

// NewPredictedLatency returns a PredictedLatency, or the error of o.Validate.
func NewPredictedLatency(o PredictedLatencyOptions) (*PredictedLatency, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &PredictedLatency{random: o.Picker == "weighted_random"}, nil
}

var predictedLatencyTerms = []string{"queue", "own", "speed", "cost"}

// Terms implements Termed: queue and own are in tokens, speed is in tokens/s, and
// cost in seconds.
func (*PredictedLatency) Terms() []string { return predictedLatencyTerms }

// UsesPrefix implements PrefixUser.
func (*PredictedLatency) UsesPrefix() bool { return true }

// Members implements MemberObserver.
func (p *PredictedLatency) Members(replicas []*decider.Replica) {
	p.costs = make([]float64, len(replicas))
}

// Rank implements Policy.
func (p *PredictedLatency) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	costs := p.costs[:len(v.Candidates)]
	low, high := math.Inf(1), math.Inf(-1)
	for c, i := range v.Candidates {
		queue, own, speed := v.PrefillBacklog(i), v.PrefillCost(i), v.PrefillSpeed(i)
		costs[c] = (queue + own) / speed
		low, high = min(low, costs[c]), max(high, costs[c])
		for t, x := range [...]float64{queue, own, speed, costs[c]} {
			v.SetTerm(c, t, x)
		}
	}
	if p.random && high > low {
		// The order of -log(U)/score is that of draws in proportion to score.
		for c, x := range costs {
			costs[c] = -math.Log(1-v.Rand.Float64()) * (high - low) / (high - x)
		}
	}
	return v.Least(dst, 3, func(c int, _ *decider.Replica) float64 { return costs[c] })
}

var (
	_ decider.Policy         = (*PredictedLatency)(nil)
	_ decider.Termed         = (*PredictedLatency)(nil)
	_ decider.PrefixUser     = (*PredictedLatency)(nil)
	_ decider.MemberObserver = (*PredictedLatency)(nil)
)
