package decider

import "math"

// isLong is how many times the typical prefill cost makes a prompt long.
const isLong = 2

// scarcity says whether shorter requests have enough replicas if this request takes one: 0 if
// they have, 1 if they have not. Shorter requests are those of less than half its prefill cost.
// Their prefill keeps A replicas busy. They need more than A because they arrive at random, and
// how many more grows with √A (W. Whitt, "Understanding the Efficiency of Multi-Server Service
// Systems", Management Science 38(5), 1992). A replica is left to them if its backlog is less
// than half the prefill cost of this request. scarcity is 0 if A + 1.5·√(A+1) replicas are left,
// 1 if A + 0.5·√(A+1) are, and linear in between. It is 1 for a request that is not long.
func scarcity(v *View) float64 {
	m := &v.memo
	if m.scarce >= 0 {
		return m.scarce
	}
	m.scarce = 1
	own := v.CostAfter(v.BestCached())
	if own < isLong*v.TypicalCost() {
		return 1
	}
	load, left := &v.pool.load, -1.0
	for _, i := range v.Candidates {
		if load.backlog(v.Replicas[i], v.Now) <= own/2 {
			left++
		}
	}
	need := load.demand.arrivals(v.Now) * load.lengths.shorter(own/2) / load.poolSpeed()
	m.scarce = max(0, min(1, 1.5-(left-need)/math.Sqrt(need+1)))
	return m.scarce
}
