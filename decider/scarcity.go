package decider

import "math"

// isLong is how many times the typical prefill cost makes a prompt long.
const isLong = 2

// scarcity is how much shorter requests lack a replica if this one takes one, 0 to 1. They need
// as many as are busy with their prefill, A, and some more, as they come at random: with a few
// times √A more hardly any of them waits (W. Whitt, "Understanding the Efficiency of Multi-Server
// Service Systems", Management Science 38(5), 1992). It is 0 where 1.5 · √(A+1) more are left, and 1
// where half a √(A+1) is. Shorter requests cost less than half as much, and a replica is left to
// them if its backlog does. A request that is not long takes none: for it scarcity is 1.
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
