package decider

import (
	"fmt"
	"time"
)

// panics counts the panics of a pool's policy, and of what a fork adds to it. While a proxy
// waits for the decision, its side recovers, and the proxy goes on without one. Anywhere
// else a panic would end a goroutine that all pools share: it is recovered where the policy
// is called, counted, and reported by Decider.Panics.
type panics struct {
	n    uint64
	last string // "" once it was reported
}

// recovered must be deferred by a function that calls the policy.
func (p *panics) recovered() {
	if r := recover(); r != nil {
		p.note(r)
	}
}

func (p *panics) note(r any) {
	p.n++
	p.last = fmt.Sprint(r)
}

func (s *selection) observeReserved(o Observer, r *Request, replica int) {
	defer s.panics.recovered()
	o.Reserved(r, replica)
}

func (s *selection) observeFirstToken(to Observer, v *reservation) {
	defer s.panics.recovered()
	to.FirstToken(&v.request, v.replica.index)
}

func (s *selection) observeFinished(to Observer, v *reservation, o Outcome) {
	defer s.panics.recovered()
	to.Finished(&v.request, v.replica.index, o)
}

func (s *selection) observeMembers(m MemberObserver) {
	defer s.panics.recovered()
	m.Members(s.replicas)
}

// counters are those of the policy, where it keeps any.
func (s *selection) counters(dst []Counter) (out []Counter) {
	out = dst
	defer s.panics.recovered()
	if c, ok := s.policy.(Counted); ok {
		out = c.Counters(dst)
	}
	return out
}

// tryDecide is Pool.decide for a held request, called on another goroutine than the
// request's. After a panic the proxy decides by itself.
func (a *admission) tryDecide(r *Request, d *Decision, now time.Duration) {
	p := a.pool
	defer func() {
		if e := recover(); e != nil {
			p.panics.note(e)
			d.Server, d.Why = "", "panic"
		}
	}()
	p.decide(r, d, now)
}

// Panic is one that a policy's pool has recovered from.
type Panic struct {
	Pool, Text string
	Total      uint64 // of the pool, since the start
}

// Panics returns the last panic of each pool that had any since the last call.
func (d *Decider) Panics() (list []Panic) {
	for _, p := range d.Pools() {
		p.mu.Lock()
		if p.panics.last != "" {
			list = append(list, Panic{p.name, p.panics.last, p.panics.n})
			p.panics.last = ""
		}
		p.mu.Unlock()
	}
	return list
}
