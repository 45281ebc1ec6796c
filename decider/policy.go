package decider

// A pool looks for the optional interfaces below by type assertion. All methods
// are called with the pool locked: they must not block, allocate, or call the
// pool. replica is an index into View.Replicas.

// Policy orders the replicas of a pool for a request. A policy belongs to one
// pool. It may keep state of its own without a lock, but must not keep r or v.
type Policy interface {
	// Rank appends the indexes of candidates to dst, best first. The first is
	// the decision, the next two are its fallbacks; where there are fewer, the
	// pool adds fallbacks of its own. Appending none means no opinion.
	Rank(r *Request, v *View, dst []int) []int
}

// Scorer judges the candidates by one measure. It sets out[c] for each position
// c of v.Candidates to a number from 0 to 1, 1 is best, or to NaN, which is no
// opinion. A scorer belongs to one pool and must not keep r or v. It may also be
// an Observer, a MemberObserver or a PrefixUser.
type Scorer interface {
	Score(r *Request, v *View, out []float64)
}

// Filter narrows the candidates before the policy ranks them. It works with any
// policy and with other filters. A filter belongs to one pool, is replaced when
// the configuration is applied, and must not keep r or v.
type Filter interface {
	// Name is constant. Decision.Why, Explain and the counters name the filter
	// by it.
	Name() string
	// Keep appends to dst those of v.Candidates that the filter keeps, in their
	// order. It keeps none of them, or all, to leave the choice as it is: a
	// filter never empties the candidate set.
	Keep(r *Request, v *View, dst []int) []int
}

// Observer is implemented by policies and scorers that follow requests after the decision.
type Observer interface {
	Reserved(r *Request, replica int)
	FirstToken(r *Request, replica int)
	Finished(r *Request, replica int, o Outcome)
}

// PeerObserver is implemented by an Observer that also follows what other agents
// reserve. FirstToken and Finished are called for their requests in any case.
type PeerObserver interface {
	ReservedByPeer(r *Request, replica int)
}

// MemberObserver is implemented by policies and scorers that prepare something
// for the pool's replicas. Members is called when the membership or a weight has
// changed; it may allocate.
type MemberObserver interface{ Members(replicas []*Replica) }

// PrefixUser is implemented by policies and scorers that compare prompts by
// Request.Blocks. Only for their pools are prompts hashed and caches modelled.
type PrefixUser interface{ UsesPrefix() bool }

// SessionUser is implemented by filters that call View.SessionReplica. Only
// their pools remember sessions.
type SessionUser interface{ UsesSessions() bool }

// Previewer is implemented by policies whose Rank changes what the next Rank does.
// Preview calls rank, which calls Rank, and undoes that.
type Previewer interface{ Preview(rank func()) }

// Termed is implemented by policies that explain their order: Terms names the
// terms that they set by View.SetTerm. The slice must not change.
type Termed interface{ Terms() []string }

// Counted is implemented by policies that keep counters. Counters appends them to
// dst.
type Counted interface {
	Counters(dst []Counter) []Counter
}

// Counter is one counter of a policy or filter, by the name and labels of its
// metric, such as `session_decisions_total{rank="home"}`.
type Counter struct {
	Name  string
	Value uint64
}
