package decider

// Least appends to dst the n candidates, at most 3, with the lowest cost,
// cheapest first, ties in random order. cost is called once for each candidate,
// with its position in Candidates and its replica.
func (v *View) Least(dst []int, n int, cost func(c int, r *Replica) float64) []int {
	return v.least(dst, n, cost, false)
}

// LeastEmptiest is Least with ties ordered by how full the caches are, emptiest first;
// about equally full ones are in random order.
func (v *View) LeastEmptiest(dst []int, n int, cost func(c int, r *Replica) float64) []int {
	return v.least(dst, n, cost, true)
}

// fullness is how full the cache of r is, in sixteenths.
func (r *Replica) fullness() uint64 {
	c := r.cache
	if c == nil || c.Capacity() < 1 {
		return 0
	}
	held, size := 16*uint64(c.Len()), uint64(c.Capacity())
	if held < size {
		return 0
	}
	return min(15, held/size)
}

// tie orders replicas of the same cost: at random, after how full they are if that counts.
func tie(r *Replica, random uint64, emptiest bool) uint64 {
	if emptiest {
		return r.fullness()<<60 | random>>4
	}
	return random
}

// least is Least, or LeastEmptiest.
func (v *View) least(dst []int, n int, cost func(c int, r *Replica) float64, emptiest bool) []int {
	var best [3]float64
	var ties [3]uint64
	start, found := len(dst), 0
	n = min(n, len(best))
	for c, i := range v.Candidates {
		r := v.Replicas[i]
		x, t := cost(c, r), uint64(0)
		if found == n {
			if x > best[n-1] {
				continue
			}
			t = tie(r, v.Rand.Uint64(), emptiest)
			if x == best[n-1] && t >= ties[n-1] {
				continue
			}
		} else {
			t = tie(r, v.Rand.Uint64(), emptiest)
			dst = append(dst, 0)
			found++
		}
		pos := found - 1
		for ; pos > 0 && (x < best[pos-1] || x == best[pos-1] && t < ties[pos-1]); pos-- {
			best[pos], ties[pos], dst[start+pos] = best[pos-1], ties[pos-1], dst[start+pos-1]
		}
		best[pos], ties[pos], dst[start+pos] = x, t, i
	}
	return dst
}

// longest bounds how many times the typical cost a prompt counts as.
const longest = 100

// Blocking estimates how much prefill cost of other requests a prompt of that cost delays
// on a replica with that many requests, in tokens: times · cost if the replica has as many
// requests as the mean of the candidates, and else in proportion to them. Where shorter
// requests have enough other replicas, times is at most spared.
func (v *View) Blocking(requests, cost, times, spared float64) float64 {
	if v.inFlight < 0 {
		v.inFlight = 0
		for _, c := range v.Candidates {
			v.inFlight += v.Replicas[c].inFlight
		}
		v.mean = max(float64(v.inFlight)/float64(len(v.Candidates)), 1)
	}
	if times > spared {
		times = max(spared, times*scarcity(v))
	}
	return times * cost * requests / v.mean
}

// Length is a prefill cost in multiples of the typical one, at most 100.
func (v *View) Length(cost float64) float64 {
	m := &v.memo
	if cost != m.long {
		m.long, m.length = cost, min(cost/max(v.TypicalCost(), 1), longest)
	}
	return m.length
}

// InFlightRange is the fewest and the most requests in flight on a candidate.
func (v *View) InFlightRange() (least, most int) {
	least = v.Replicas[v.Candidates[0]].inFlight
	for _, i := range v.Candidates {
		n := v.Replicas[i].inFlight
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// DrawByWeight draws a random position in Candidates, in proportion to the
// weights. It never draws the position skip, unless that is the only one; -1 skips
// none.
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

// Keep appends to dst the candidates that ok accepts, for a Filter. It appends
// none while they are overloaded: when even the least loaded of them has more
// than PoolConfig.Spill requests in flight above the least loaded candidate.
func (v *View) Keep(dst []int, ok func(*Replica) bool) []int {
	start := len(dst)
	for _, i := range v.Candidates {
		if ok(v.Replicas[i]) {
			dst = append(dst, i)
		}
	}
	if kept := dst[start:]; len(kept) > 0 && leastInFlight(v, kept) > leastInFlight(v, v.Candidates)+v.pool.config.Spill {
		return dst[:start]
	}
	return dst
}

// leastInFlight is the fewest requests in flight on any of the replicas, of which
// there is at least one.
func leastInFlight(v *View, replicas []int) int {
	least := v.Replicas[replicas[0]].inFlight
	for _, i := range replicas[1:] {
		least = min(least, v.Replicas[i].inFlight)
	}
	return least
}
