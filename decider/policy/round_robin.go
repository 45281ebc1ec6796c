package policy

import (
	"slices"

	"pointsman/decider"
)

// RoundRobin takes the candidates in turn, from a random start, so that several
// agents do not all begin with the same replica. A replica of weight 2 has two
// turns. Choose it to compare others with: it ignores load.
//
// Turns of unequal weights are spread by the smooth method of nginx
// (ngx_http_upstream_round_robin.c): at each turn every candidate gains its
// weight, the one with the most is chosen and pays the sum.
type RoundRobin struct {
	next   int
	begun  bool
	even   bool  // all weights are equal
	credit []int // by replica
}

// Members implements MemberObserver.
func (p *RoundRobin) Members(replicas []*decider.Replica) {
	p.credit = make([]int, len(replicas))
	p.even = true
	for _, r := range replicas {
		p.even = p.even && r.Weight() == replicas[0].Weight()
	}
}

// Rank implements Policy.
func (p *RoundRobin) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	if !p.begun {
		p.begun = true
		p.next = v.Rand.IntN(len(v.Candidates))
	}
	if p.even {
		p.next++
		return append(dst, v.Candidates[p.next%len(v.Candidates)])
	}
	best, sum := -1, 0
	for _, i := range v.Candidates {
		w := v.Replicas[i].Weight()
		p.credit[i] += w
		sum += w
		if best < 0 || p.credit[i] > p.credit[best] {
			best = i
		}
	}
	p.credit[best] -= sum
	return append(dst, best)
}

// Preview implements Previewer.
func (p *RoundRobin) Preview(rank func()) {
	next, begun, credit := p.next, p.begun, slices.Clone(p.credit)
	defer func() { p.next, p.begun, p.credit = next, begun, credit }()
	rank()
}

var (
	_ decider.Previewer      = (*RoundRobin)(nil)
	_ decider.Policy         = (*RoundRobin)(nil)
	_ decider.MemberObserver = (*RoundRobin)(nil)
)
