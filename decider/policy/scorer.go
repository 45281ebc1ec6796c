package policy

import (
	"math"

	"pointsman/decider"
)

// NamedScorer is a scorer that the policy weighted can give a weight.
type NamedScorer struct {
	Name string
	New  func() decider.Scorer // makes one for a pool
}

// String is the name alone: options with equal names have equal texts.
func (s NamedScorer) String() string { return s.Name }

// Scorers is the table of scorers, in the order in which error messages list
// them. WeightedOptions.With adds others.
var Scorers = []NamedScorer{
	{"prefix", func() decider.Scorer { return PrefixScorer{} }},
	{"approximate_prefix", func() decider.Scorer { return newApproximatePrefixScorer() }},
	{"queue", func() decider.Scorer { return QueueScorer{} }},
	{"queue_tokens", func() decider.Scorer { return QueueTokensScorer{} }},
	{"running", func() decider.Scorer { return RunningScorer{} }},
	{"kv_usage", func() decider.Scorer { return KVUsageScorer{} }},
	{"tokens", func() decider.Scorer { return TokensScorer{} }},
	{"lora", func() decider.Scorer { return LoRAScorer{} }},
	{"locality", func() decider.Scorer { return LocalityScorer{} }},
	{"session", func() decider.Scorer { return &SessionScorer{} }},
	{"throughput", func() decider.Scorer { return ThroughputScorer{} }},
	{"latency", func() decider.Scorer { return LatencyScorer{} }},
	{"no_hit_lru", func() decider.Scorer { return &NoHitLRUScorer{} }},
}

// lowestBest turns measures into scores: 1 for the lowest, 0 for the highest,
// and 1 for all if they are equal. NaN stays.
func lowestBest(x []float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, y := range x {
		if y < low {
			low = y
		}
		if y > high {
			high = y
		}
	}
	for c, y := range x {
		switch {
		case math.IsNaN(y):
		case high > low:
			x[c] = (high - y) / (high - low)
		default:
			x[c] = 1
		}
	}
}

// noOpinion sets all of out to NaN.
func noOpinion(out []float64) {
	for c := range out {
		out[c] = math.NaN()
	}
}
