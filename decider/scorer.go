package decider

import "math"

// Scorer judges the candidates by one measure. It sets out[c] for each position
// c of v.Candidates: from 0 to 1, 1 is best, NaN is no opinion. A Scorer
// belongs to one pool and is called with the pool locked: it must not block,
// allocate, or keep r or v. It may also be an Observer, a MemberObserver or a
// PrefixUser.
type Scorer interface {
	Score(r *Request, v *View, out []float64)
}

// scorers is the table of scorers by name, in the order in which refusals list
// them. A scorer of your own is one file and one line here.
var scorers = []struct {
	name string
	make func() Scorer
}{
	{"prefix", func() Scorer { return PrefixScorer{} }},
	{"approximate_prefix", func() Scorer { return newApproximatePrefixScorer() }},
	{"queue", func() Scorer { return QueueScorer{} }},
	{"queue_tokens", func() Scorer { return QueueTokensScorer{} }},
	{"running", func() Scorer { return RunningScorer{} }},
	{"kv_usage", func() Scorer { return KVUsageScorer{} }},
	{"tokens", func() Scorer { return TokensScorer{} }},
	{"lora", func() Scorer { return LoRAScorer{} }},
	{"locality", func() Scorer { return LocalityScorer{} }},
	{"session", func() Scorer { return &SessionScorer{} }},
	{"throughput", func() Scorer { return ThroughputScorer{} }},
	{"latency", func() Scorer { return LatencyScorer{} }},
	{"no_hit_lru", func() Scorer { return &NoHitLRUScorer{} }},
}

// newScorer returns the scorer of that name, or nil.
func newScorer(name string) Scorer {
	for _, s := range scorers {
		if s.name == name {
			return s.make()
		}
	}
	return nil
}

// ScorerNames returns the names that a configuration may give weights to.
func ScorerNames() []string {
	var names []string
	for _, s := range scorers {
		names = append(names, s.name)
	}
	return names
}

// lowestBest turns measures into scores: 1 for the lowest, 0 for the highest,
// and 1 for all when they are equal. NaN stays.
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

// noOpinion sets out to NaN.
func noOpinion(out []float64) {
	for c := range out {
		out[c] = math.NaN()
	}
}
