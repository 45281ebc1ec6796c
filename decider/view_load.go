package decider

// InFlightRange is the fewest and the most requests in flight on a candidate.
func (v *View) InFlightRange() (least, most int) {
	least = v.Replicas[v.Candidates[0]].inFlight
	for _, i := range v.Candidates {
		n := v.Replicas[i].inFlight
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// DrawByWeight draws a position in Candidates at random, in proportion to the
// weights. It leaves out the position skip, if there is another one; -1 leaves
// out none.
func (v *View) DrawByWeight(skip int) int {
	n := len(v.Candidates)
	if n == 1 {
		return 0
	}
	if v.even {
		if skip < 0 {
			return v.Rand.IntN(n)
		}
		c := v.Rand.IntN(n - 1)
		if c >= skip {
			c++
		}
		return c
	}
	sum := 0
	for c, i := range v.Candidates {
		if c != skip {
			sum += v.Replicas[i].Weight()
		}
	}
	x := v.Rand.IntN(sum)
	for c, i := range v.Candidates {
		if c == skip {
			continue
		}
		if x -= v.Replicas[i].Weight(); x < 0 {
			return c
		}
	}
	return n - 1
}
