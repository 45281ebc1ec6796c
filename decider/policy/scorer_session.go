package policy

import (
	"pointsman/decider"
	"pointsman/session"
)

// SessionScorer is 1 on the home of the request's session among the candidates,
// by the same hashing as the policy Session, and 0 elsewhere. It has no opinion on
// a request without a session.
type SessionScorer struct{ table *session.Table }

// Members implements MemberObserver.
func (s *SessionScorer) Members(replicas []*decider.Replica) { s.table = sessionTable(replicas) }

// Score implements Scorer.
func (s *SessionScorer) Score(r *decider.Request, v *decider.View, out []float64) {
	if !r.HasSession || s.table == nil {
		noOpinion(out)
		return
	}
	home, best := 0, -1.0
	for c, i := range v.Candidates {
		out[c] = 0
		if x := s.table.Score(r.Session, i); x > best {
			home, best = c, x
		}
	}
	out[home] = 1
}

var (
	_ decider.Scorer         = (*SessionScorer)(nil)
	_ decider.MemberObserver = (*SessionScorer)(nil)
)
