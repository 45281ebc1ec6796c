package decider

import "slices"

// NoHitLRUScorer spreads prompts that no replica has cached: 1 for the
// candidate that was given such a prompt longest ago, down to 0 for the last
// one. It has no opinion on a prompt that some replica has. Add it to prefix,
// which has nothing to choose cold prompts by.
type NoHitLRUScorer struct {
	order []*Replica // the one given a cold prompt longest ago first
	now   []*Replica // the pool's, by index
	cold  bool       // the last request scored was
}

// UsesPrefix implements PrefixUser.
func (*NoHitLRUScorer) UsesPrefix() bool { return true }

// Members implements MemberObserver. New replicas come first.
func (s *NoHitLRUScorer) Members(replicas []*Replica) {
	var order []*Replica
	for _, r := range replicas {
		if !slices.Contains(s.order, r) {
			order = append(order, r)
		}
	}
	for _, r := range s.order {
		if slices.Contains(replicas, r) {
			order = append(order, r)
		}
	}
	s.order, s.now = order, replicas
}

// Score implements Scorer.
func (s *NoHitLRUScorer) Score(_ *Request, v *View, out []float64) {
	noOpinion(out)
	s.cold = v.BestCached() == 0
	if !s.cold {
		return
	}
	n, rank := len(v.Candidates), 0
	for _, r := range s.order {
		// Candidates are in the order of the pool.
		if c, ok := slices.BinarySearch(v.Candidates, r.index); ok {
			out[c] = 1
			if n > 1 {
				out[c] = float64(n-1-rank) / float64(n-1)
			}
			rank++
		}
	}
}

// Reserved implements Observer. It follows the Score of the same request.
func (s *NoHitLRUScorer) Reserved(_ *Request, replica int) {
	if !s.cold {
		return
	}
	k := slices.Index(s.order, s.now[replica])
	copy(s.order[k:], s.order[k+1:])
	s.order[len(s.order)-1] = s.now[replica]
}

// FirstToken implements Observer.
func (*NoHitLRUScorer) FirstToken(*Request, int) {}

// Finished implements Observer.
func (*NoHitLRUScorer) Finished(*Request, int, Outcome) {}

var (
	_ Scorer         = (*NoHitLRUScorer)(nil)
	_ Observer       = (*NoHitLRUScorer)(nil)
	_ MemberObserver = (*NoHitLRUScorer)(nil)
	_ PrefixUser     = (*NoHitLRUScorer)(nil)
)
