package decider

// Random picks a candidate by chance, in proportion to its weight. Choose it
// to compare others with, or where many agents share nothing.
type Random struct{}

// Rank implements Policy.
func (Random) Rank(_ *Request, v *View, dst []int) []int {
	return append(dst, v.Candidates[v.weighted(-1)])
}

// weighted draws a position in Candidates in proportion to the weights; the
// position skip is left out, where there is another one.
func (v *View) weighted(skip int) int {
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

var _ Policy = Random{}
