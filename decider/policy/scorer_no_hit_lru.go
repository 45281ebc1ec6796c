package policy

import (
	"slices"

	"pointsman/decider"
)

// NoHitLRUScorer spreads prompts that no replica has cached: 1 for the
// candidate that was sent such a prompt longest ago, down to 0 for the one that
// was sent one last. It has no opinion on a prompt that some replica has cached.
// Combine it with prefix, which has no preference among replicas for such
// prompts.
type NoHitLRUScorer struct {
	order []coldTurn // the replica sent a cold prompt longest ago first
	cold  bool       // the request scored last was cold
}

type coldTurn struct {
	replica *decider.Replica
	index   int // in View.Replicas
}

// UsesPrefix implements PrefixUser.
func (*NoHitLRUScorer) UsesPrefix() bool { return true }

// Members implements MemberObserver. New replicas come first.
func (s *NoHitLRUScorer) Members(replicas []*decider.Replica) {
	var order []coldTurn
	for i, r := range replicas {
		if !slices.ContainsFunc(s.order, func(t coldTurn) bool { return t.replica == r }) {
			order = append(order, coldTurn{r, i})
		}
	}
	for _, t := range s.order {
		if i := slices.Index(replicas, t.replica); i >= 0 {
			order = append(order, coldTurn{t.replica, i})
		}
	}
	s.order = order
}

// Score implements Scorer.
func (s *NoHitLRUScorer) Score(_ *decider.Request, v *decider.View, out []float64) {
	noOpinion(out)
	s.cold = v.BestCached() == 0
	if !s.cold {
		return
	}
	n, rank := len(v.Candidates), 0
	for _, t := range s.order {
		// Candidates are in the order of the pool.
		if c, ok := slices.BinarySearch(v.Candidates, t.index); ok {
			out[c] = 1
			if n > 1 {
				out[c] = float64(n-1-rank) / float64(n-1)
			}
			rank++
		}
	}
}

// Reserved implements Observer. It follows the Score of the same request.
func (s *NoHitLRUScorer) Reserved(_ *decider.Request, replica int) {
	if !s.cold {
		return
	}
	for k, t := range s.order {
		if t.index == replica {
			copy(s.order[k:], s.order[k+1:])
			s.order[len(s.order)-1] = t
			return
		}
	}
}

// FirstToken implements Observer.
func (*NoHitLRUScorer) FirstToken(*decider.Request, int) {}

// Finished implements Observer.
func (*NoHitLRUScorer) Finished(*decider.Request, int, decider.Outcome) {}

var (
	_ decider.Scorer         = (*NoHitLRUScorer)(nil)
	_ decider.Observer       = (*NoHitLRUScorer)(nil)
	_ decider.MemberObserver = (*NoHitLRUScorer)(nil)
	_ decider.PrefixUser     = (*NoHitLRUScorer)(nil)
)
