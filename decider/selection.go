package decider

import (
	"math"
	"math/rand/v2"
	"time"
)

// selection chooses among the members: candidates, then filters, then the
// policy, then fallbacks. It lives under the pool's lock.
type selection struct {
	members
	policy   Policy
	observer Observer // policy, if it is one
	terms    []string // the policy's
	filters  filterChain
	limits   bool // replicas at their limits are no candidates
	view     View

	panics panics // of the policy, where its caller does not recover them

	usable []int // scratch of candidates
	sound  []int // scratch of working
	order  []int // of the last rank, best first
}

// setPolicy makes p the policy.
func (s *selection) setPolicy(p Policy) {
	s.policy, s.terms = p, nil
	s.observer, _ = p.(Observer)
	if t, ok := p.(Termed); ok {
		s.terms = t.Terms()
	}
}

// membersChanged applies a change of the membership or of a weight.
func (s *selection) membersChanged() {
	s.view.Replicas, s.view.even = s.replicas, s.evenWeights()
	s.refresh()
	if m, ok := s.policy.(MemberObserver); ok {
		s.observeMembers(m)
	}
}

// refresh applies a change of a replica's state.
func (s *selection) refresh() { s.updateOpen(s.limits) }

// rank fills order for r: the policy's order, then fallbacks. mask leaves out
// candidates for now.
func (s *selection) rank(r *Request, mask *mask, now time.Duration) {
	v := &s.view
	v.Now = now
	v.Candidates = mask.filter(s.candidates(r, now))
	s.filters.begin(v.Candidates)
	s.order = s.order[:0]
	if len(v.Candidates) == 0 {
		return
	}
	s.filters.narrow(r, v)
	v.matchPrefix(r)
	resetTerms(v, len(s.terms))
	s.order = s.policy.Rank(r, v, s.order)
	if len(s.order) == 0 {
		s.order = append(s.order, v.Candidates[v.Rand.IntN(len(v.Candidates))])
	}
	s.backUp()
}

// candidates returns the indexes of the replicas that may be chosen for r. A replica that
// is down, draining, full or already tried is never one. A replica that is ejected, on
// probation or in its slow start is left out as long as others remain: those conditions
// never empty the candidate set.
func (s *selection) candidates(r *Request, now time.Duration) []int {
	if s.unlimited && r.Exclude == "" && (r.LoRA == "" || !s.anyLists) && s.settled(now) {
		return s.open
	}
	s.usable = s.usable[:0]
	for _, i := range s.open {
		if s.accepts(s.replicas[i], r) {
			s.usable = append(s.usable, i)
		}
	}
	usable := s.usable
	for _, i := range usable {
		if c := s.replicas[i]; s.trusted(c, now) && (r.Exclude == "" || !c.suspect()) && s.warm(c, s.view.Rand, now) {
			s.usable = append(s.usable, i)
		}
	}
	if preferred := s.usable[len(usable):]; len(preferred) > 0 {
		return preferred
	}
	return usable
}

// backUp completes order to a decision and two fallbacks, preferably replicas that are seen
// to work.
func (s *selection) backUp() {
	v := &s.view
	if s.suspects > 0 {
		s.order = append(s.order[:1], s.working(s.order[1:])...)
		s.order = s.addFallbacks(s.order, s.working(v.Candidates), v.Rand)
		s.order = s.addFallbacks(s.order, s.working(s.filters.before), v.Rand)
	}
	s.order = s.addFallbacks(s.order, v.Candidates, v.Rand)
	s.order = s.addFallbacks(s.order, s.filters.before, v.Rand)
}

// working returns those of list that are not suspect. It is valid until the next
// call.
func (s *selection) working(list []int) []int {
	s.sound = s.sound[:0]
	for _, i := range list {
		if !s.replicas[i].suspect() {
			s.sound = append(s.sound, i)
		}
	}
	return s.sound
}

// accepts reports whether an open replica has capacity for r and serves it.
func (s *selection) accepts(c *Replica, r *Request) bool {
	return (c.limit == 0 || c.inFlight < c.limit || !s.limits) &&
		(r.Exclude == "" || c.name != r.Exclude) && s.serves(c, r.LoRA)
}

// slowStartFloor is the share of its traffic that a replica gets as it comes up.
const slowStartFloor = 0.1

// warm draws whether a replica in its slow start takes part in this decision: its
// chance grows from slowStartFloor to 1.
func (m *members) warm(c *Replica, chance *rand.Rand, now time.Duration) bool {
	up := now - c.since
	if up >= m.slowStart {
		return true
	}
	share := float64(up) / float64(m.slowStart)
	return chance.Float64() < max(share, slowStartFloor)
}

// addFallbacks fills order up to a decision and two fallbacks. Each is the less
// loaded of two replicas of from, picked at random.
func (m *members) addFallbacks(order, from []int, chance *rand.Rand) []int {
	n, need := len(from), 3-len(order)
	if need <= 0 {
		return order
	}
	if n < 3 { // of three or more, at least need are not in order
		need = min(need, without(from, order))
	}
	for range need {
		best := -1
		for range 2 {
			i := chance.IntN(n)
			for has(order, from[i]) {
				i = (i + 1) % n
			}
			c := from[i]
			if best < 0 || m.replicas[c].Load() < m.replicas[best].Load() {
				best = c
			}
		}
		order = append(order, best)
	}
	return order
}

// without counts the elements of list that are not in order.
func without(list, order []int) (n int) {
	for _, i := range list {
		if !has(order, i) {
			n++
		}
	}
	return n
}

// prospects returns how much of r's prompt no replica has cached, and how soon its first
// token could come.
func (s *selection) prospects(r *Request, now time.Duration) (prefill float64, soonest time.Duration) {
	v := &s.view
	v.Now = now
	v.matchPrefix(r)
	prefill = float64(r.Input - v.BestCached())
	best := math.Inf(1)
	for _, i := range s.open {
		best = min(best, (v.PrefillBacklog(i)+v.PrefillCost(i))/v.PrefillSpeed(i))
	}
	for _, i := range s.prefillers {
		best = min(best, (v.PrefillBacklog(i)+v.PrefillCost(i))/v.PrefillSpeed(i))
	}
	if len(s.open) == 0 {
		best = 0 // when one comes is unknown: the queue watches the deadline
	}
	return prefill, seconds(best)
}

// prefer puts replica i first in order.
func (s *selection) prefer(i int) {
	for k, o := range s.order {
		if o == i {
			s.order[0], s.order[k] = i, s.order[0]
			return
		}
	}
	s.order[0] = i
}

func has(list []int, x int) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}
