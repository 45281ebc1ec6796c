package decider

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Weighted takes the candidate with the highest sum of scores times weights,
// ties by chance: the form of llm-d's scheduler and of the Gateway API
// Inference Extension. Choose it to keep weights that you have from there, or
// to mix measures of your own.
//
// Where a scorer has no opinion on a candidate, the mean of its scores for the
// others counts; where it has none on any, it does not count.
type Weighted struct {
	scorers []weightedScorer
	terms   []string
	prefix  bool
	scores  []float64 // scratch: of one scorer
	sums    []float64 // scratch: of the candidates
}

type weightedScorer struct {
	Scorer
	weight   float64
	observer Observer // the scorer, when it is one
}

// WeightedOptions are the knobs of Weighted.
type WeightedOptions struct {
	// Scorers are the weights by the names of ScorerNames; 0 and above.
	Scorers map[string]float64 `yaml:"scorers"`
	// LRUCapacityPerServer is how much approximate_prefix remembers of a
	// replica, named as in llm-d: in blocks of 64 tokens.
	LRUCapacityPerServer int `yaml:"lru_capacity_per_server"`
}

// WeightedDefaults are the weights of llm-d's guides and its capacity, but with
// the prefix scorer that knows more.
var WeightedDefaults = WeightedOptions{
	Scorers:              map[string]float64{"prefix": 3, "queue": 2, "kv_usage": 2},
	LRUCapacityPerServer: llmdCapacity,
}

// NewWeighted returns a Weighted, or an error that names the option at fault.
func NewWeighted(o WeightedOptions) (*Weighted, error) {
	p := &Weighted{}
	for _, name := range slices.Sorted(maps.Keys(o.Scorers)) {
		if newScorer(name) == nil {
			return nil, fmt.Errorf("scorers: unknown %.40q; want %s", name, strings.Join(ScorerNames(), ", "))
		}
		if weight := o.Scorers[name]; !(weight >= 0) || math.IsInf(weight, 1) {
			return nil, fmt.Errorf("scorers: %s has the weight %v; want 0 or more", name, weight)
		}
	}
	if n := o.LRUCapacityPerServer; n < 1 || n > maxLLMDCapacity {
		return nil, fmt.Errorf("lru_capacity_per_server: want 1 to %d blocks of %d tokens, not %d", maxLLMDCapacity, llmdBlockTokens, n)
	}
	for _, name := range ScorerNames() { // in an order of their own, not the map's
		weight := o.Scorers[name]
		if weight == 0 {
			continue
		}
		s := weightedScorer{Scorer: newScorer(name), weight: weight}
		s.observer, _ = s.Scorer.(Observer)
		if a, ok := s.Scorer.(*ApproximatePrefixScorer); ok {
			a.tokens = o.LRUCapacityPerServer * llmdBlockTokens
		}
		if u, ok := s.Scorer.(PrefixUser); ok {
			p.prefix = p.prefix || u.UsesPrefix()
		}
		p.scorers = append(p.scorers, s)
		p.terms = append(p.terms, name)
	}
	if len(p.scorers) == 0 {
		return nil, errors.New("scorers: want at least one with a weight above 0")
	}
	p.terms = append(p.terms, "score")
	return p, nil
}

// Terms implements Termed: each scorer's score, unweighted, and the sum.
func (p *Weighted) Terms() []string { return p.terms }

// UsesPrefix implements PrefixUser.
func (p *Weighted) UsesPrefix() bool { return p.prefix }

// Members implements MemberObserver.
func (p *Weighted) Members(replicas []*Replica) {
	p.scores = make([]float64, len(replicas))
	p.sums = make([]float64, len(replicas))
	for _, s := range p.scorers {
		if m, ok := s.Scorer.(MemberObserver); ok {
			m.Members(replicas)
		}
	}
}

// Rank implements Policy.
func (p *Weighted) Rank(r *Request, v *View, dst []int) []int {
	n := len(v.Candidates)
	scores, sums := p.scores[:n], p.sums[:n]
	clear(sums)
	for k, s := range p.scorers {
		s.Score(r, v, scores)
		mean, some := meanOpinion(scores)
		for c, x := range scores {
			v.SetTerm(c, k, x)
			switch {
			case !math.IsNaN(x):
				sums[c] += s.weight * x
			case some:
				sums[c] += s.weight * mean
			}
		}
	}
	for c, sum := range sums {
		v.SetTerm(c, len(p.scorers), sum)
	}
	return v.Least(dst, 3, func(c int, _ *Replica) float64 { return -sums[c] })
}

// meanOpinion is the mean of the scores that are not NaN, if there is one.
func meanOpinion(scores []float64) (mean float64, some bool) {
	n := 0
	for _, x := range scores {
		if !math.IsNaN(x) {
			mean += x
			n++
		}
	}
	return mean / float64(max(n, 1)), n > 0
}

// Reserved implements Observer.
func (p *Weighted) Reserved(r *Request, replica int) {
	for _, s := range p.scorers {
		if s.observer != nil {
			s.observer.Reserved(r, replica)
		}
	}
}

// FirstToken implements Observer.
func (p *Weighted) FirstToken(r *Request, replica int) {
	for _, s := range p.scorers {
		if s.observer != nil {
			s.observer.FirstToken(r, replica)
		}
	}
}

// Finished implements Observer.
func (p *Weighted) Finished(r *Request, replica int, o Outcome) {
	for _, s := range p.scorers {
		if s.observer != nil {
			s.observer.Finished(r, replica, o)
		}
	}
}

var (
	_ Policy         = (*Weighted)(nil)
	_ Termed         = (*Weighted)(nil)
	_ PrefixUser     = (*Weighted)(nil)
	_ MemberObserver = (*Weighted)(nil)
	_ Observer       = (*Weighted)(nil)
)
