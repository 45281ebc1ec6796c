package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"pointsman/decider"
)

// Weighted takes the candidate with the highest sum of scores times weights, ties
// at random, as llm-d's scheduler and the Gateway API Inference Extension do.
// Choose it to keep weights that you have, or to combine several measures.
//
// A scorer without an opinion on a candidate counts with the mean of its scores
// for the others. A scorer without an opinion on any candidate does not count.
type Weighted struct {
	scorers []weightedScorer
	terms   []string
	prefix  bool
	scores  []float64 // scratch: of one scorer
	sums    []float64 // scratch: of the candidates
}

type weightedScorer struct {
	decider.Scorer
	weight   float64
	observer decider.Observer // the scorer, if it is one
}

// WeightedOptions are the options of Weighted.
type WeightedOptions struct {
	// Scorers are the weights, 0 or more, by the names of Known.
	Scorers map[string]float64 `yaml:"scorers" help:"weights, 0 or more; a scorer that is not named has 0"`
	// LRUCapacityPerServer is how much approximate_prefix remembers of a
	// replica, in blocks of 64 tokens. The name is llm-d's.
	LRUCapacityPerServer int `yaml:"lru_capacity_per_server" help:"blocks of 64 tokens that approximate_prefix remembers per replica, 1 to 262144"`
	// Known are the scorers that Scorers may name; nil = those of the table
	// Scorers.
	Known []NamedScorer `yaml:"-"`
}

// WeightedDefaults are the weights of llm-d's guides and its capacity, but with
// prefix in the place of llm-d's prefix scorer, which is approximate_prefix.
var WeightedDefaults = WeightedOptions{
	Scorers:              map[string]float64{"prefix": 3, "queue": 2, "kv_usage": 2},
	LRUCapacityPerServer: llmdCapacity,
}

// With returns the options with more scorers that may be named.
func (o WeightedOptions) With(own ...NamedScorer) WeightedOptions {
	o.Known = slices.Concat(o.known(), own)
	return o
}

func (o WeightedOptions) known() []NamedScorer {
	if o.Known == nil {
		return Scorers
	}
	return o.Known
}

// Validate returns an error that names the option at fault.
func (o WeightedOptions) Validate() error {
	var names []string
	for _, s := range o.known() {
		names = append(names, s.Name)
	}
	some := false
	for _, name := range slices.Sorted(maps.Keys(o.Scorers)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("scorers: unknown %.40q; want %s", name, strings.Join(names, ", "))
		}
		weight := o.Scorers[name]
		if !(weight >= 0) || math.IsInf(weight, 1) {
			return fmt.Errorf("scorers: %s has the weight %v; want 0 or more", name, weight)
		}
		some = some || weight > 0
	}
	if n := o.LRUCapacityPerServer; n < 1 || n > maxLLMDCapacity {
		return fmt.Errorf("lru_capacity_per_server: want 1 to %d blocks of %d tokens, not %d", maxLLMDCapacity, llmdBlockTokens, n)
	}
	if !some {
		return errors.New("scorers: want at least one with a weight above 0")
	}
	return nil
}

// NewWeighted returns a Weighted, or the error of o.Validate.
func NewWeighted(o WeightedOptions) (*Weighted, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := &Weighted{}
	for _, known := range o.known() { // in a fixed order, unlike the map
		weight := o.Scorers[known.Name]
		if weight == 0 {
			continue
		}
		s := weightedScorer{Scorer: known.New(), weight: weight}
		s.observer, _ = s.Scorer.(decider.Observer)
		if a, ok := s.Scorer.(*ApproximatePrefixScorer); ok {
			a.tokens = o.LRUCapacityPerServer * llmdBlockTokens
		}
		if u, ok := s.Scorer.(decider.PrefixUser); ok {
			p.prefix = p.prefix || u.UsesPrefix()
		}
		p.scorers = append(p.scorers, s)
		p.terms = append(p.terms, known.Name)
	}
	p.terms = append(p.terms, "score")
	return p, nil
}

// Terms implements Termed: each scorer's score, unweighted, and the sum.
func (p *Weighted) Terms() []string { return p.terms }

// UsesPrefix implements PrefixUser.
func (p *Weighted) UsesPrefix() bool { return p.prefix }

// Members implements MemberObserver.
func (p *Weighted) Members(replicas []*decider.Replica) {
	p.scores = make([]float64, len(replicas))
	p.sums = make([]float64, len(replicas))
	for _, s := range p.scorers {
		if m, ok := s.Scorer.(decider.MemberObserver); ok {
			m.Members(replicas)
		}
	}
}

// Rank implements Policy.
func (p *Weighted) Rank(r *decider.Request, v *decider.View, dst []int) []int {
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
	return v.Least(dst, 3, func(c int, _ *decider.Replica) float64 { return -sums[c] })
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
func (p *Weighted) Reserved(r *decider.Request, replica int) {
	for _, s := range p.scorers {
		if s.observer != nil {
			s.observer.Reserved(r, replica)
		}
	}
}

// ReservedByPeer implements PeerObserver.
func (p *Weighted) ReservedByPeer(r *decider.Request, replica int) {
	for _, s := range p.scorers {
		if o, ok := s.observer.(decider.PeerObserver); ok {
			o.ReservedByPeer(r, replica)
		}
	}
}

// FirstToken implements Observer.
func (p *Weighted) FirstToken(r *decider.Request, replica int) {
	for _, s := range p.scorers {
		if s.observer != nil {
			s.observer.FirstToken(r, replica)
		}
	}
}

// Finished implements Observer.
func (p *Weighted) Finished(r *decider.Request, replica int, o decider.Outcome) {
	for _, s := range p.scorers {
		if s.observer != nil {
			s.observer.Finished(r, replica, o)
		}
	}
}

// RestoreCache implements CacheRestorer.
func (p *Weighted) RestoreCache(replica int, blocks []uint64) {
	for _, s := range p.scorers {
		if c, ok := s.observer.(decider.CacheRestorer); ok {
			c.RestoreCache(replica, blocks)
		}
	}
}

var (
	_ decider.Policy         = (*Weighted)(nil)
	_ decider.Termed         = (*Weighted)(nil)
	_ decider.PrefixUser     = (*Weighted)(nil)
	_ decider.MemberObserver = (*Weighted)(nil)
	_ decider.Observer       = (*Weighted)(nil)
	_ decider.PeerObserver   = (*Weighted)(nil)
)
