package decider

// Policies for the tests of this package, which cannot import decider/policy.
// Each is the simplest that does what the tests need of its namesake there.

// LeastRequests takes the candidate with the fewest requests in flight.
type LeastRequests struct{}

func (LeastRequests) Rank(_ *Request, v *View, dst []int) []int {
	return v.Least(dst, 3, func(_ int, r *Replica) float64 { return r.Load() })
}

// Random draws a candidate by weight.
type Random struct{}

func (Random) Rank(_ *Request, v *View, dst []int) []int {
	return append(dst, v.Candidates[v.DrawByWeight(-1)])
}

// PowerOfTwo takes the less loaded of two candidates.
type PowerOfTwo struct{}

func (PowerOfTwo) Rank(_ *Request, v *View, dst []int) []int {
	a := v.DrawByWeight(-1)
	if len(v.Candidates) == 1 {
		return append(dst, v.Candidates[a])
	}
	x, y := v.Candidates[a], v.Candidates[v.DrawByWeight(a)]
	if v.Replicas[y].Load() < v.Replicas[x].Load() {
		x, y = y, x
	}
	return append(dst, x, y)
}

// RoundRobin takes the candidates in turn.
type RoundRobin struct{ next int }

func (p *RoundRobin) Rank(_ *Request, v *View, dst []int) []int {
	p.next++
	return append(dst, v.Candidates[p.next%len(v.Candidates)])
}

// LeastWork takes the candidate with the least time to the first token.
type LeastWork struct{}

var leastWorkTerms = []string{"queue", "own", "cost"}

func (LeastWork) Terms() []string  { return leastWorkTerms }
func (LeastWork) UsesPrefix() bool { return true }

func (LeastWork) Rank(_ *Request, v *View, dst []int) []int {
	return v.Least(dst, 3, func(c int, _ *Replica) float64 {
		i := v.Candidates[c]
		queue, own := v.PrefillBacklog(i), v.PrefillCost(i)
		cost := (queue + own) / v.PrefillSpeed(i)
		v.SetTerm(c, 0, queue)
		v.SetTerm(c, 1, own)
		v.SetTerm(c, 2, cost)
		return cost
	})
}

// KVAware is LeastWork on tokens.
type KVAware struct {
	LeastWork
	options TokenOptions
}

func (k *KVAware) Tokens() *TokenOptions { return &k.options }

// NewKVAware returns a KVAware.
func NewKVAware(o TokenOptions) (*KVAware, error) { return &KVAware{options: o}, nil }

// docBlocks are the keys of the first n blocks of a document.
func docBlocks(key, n int) []uint64 {
	var r Request
	document(key, n, 0)(&r)
	return r.Blocks
}

// LeastSignals takes the candidate with the least of all that engines report.
type LeastSignals struct{}

func (LeastSignals) Rank(_ *Request, v *View, dst []int) []int {
	return v.Least(dst, 3, func(c int, _ *Replica) float64 {
		i := v.Candidates[c]
		return v.WaitingRequests(i) + v.RunningRequests(i) + v.KVUsage(i) + v.Throughput(i)
	})
}
