package workload

import (
	"math"
	"math/rand/v2"
	"time"

	"pointsman/sim/trace"
)

// generator makes the requests of one workload.
type generator struct {
	random      *rand.Rand
	blockTokens int
	requests    []trace.Request
	keys        uint64 // block keys made so far
	sessions    uint64
	// until is when the last session begins. Later requests are cut off, so that the load
	// does not fade out.
	until time.Duration
}

func newGenerator(name string, seed uint64, blockTokens int) *generator {
	kind := uint64(0)
	for _, c := range name {
		kind = kind*31 + uint64(c)
	}
	return &generator{random: rand.New(rand.NewPCG(seed, kind)), blockTokens: blockTokens}
}

// text is a prompt that may be extended. Texts made from one another share the
// keys of their common blocks.
type text struct {
	g      *generator
	keys   []uint64
	tokens int
}

// newText returns a text of that many tokens that no other shares.
func (g *generator) newText(tokens int) *text {
	t := &text{g: g}
	t.extend(tokens)
	return t
}

// newTexts returns n texts with lengths from low to high.
func (g *generator) newTexts(n, low, high int) []*text {
	list := make([]*text, n)
	for i := range list {
		list[i] = g.newText(g.between(low, high))
	}
	return list
}

// extend adds new tokens.
func (t *text) extend(tokens int) {
	t.tokens += tokens
	for len(t.keys) < t.tokens/t.g.blockTokens {
		t.g.keys++
		t.keys = append(t.keys, trace.Hash(t.g.keys))
	}
}

// fork returns a text that begins with the first tokens of t.
func (t *text) fork(tokens int) *text {
	n := min(tokens, t.tokens) / t.g.blockTokens
	return &text{g: t.g, keys: t.keys[:n:n], tokens: min(tokens, t.tokens)}
}

// clone returns a copy of t, to be extended in another way.
func (t *text) clone() *text { return t.fork(t.tokens) }

// ask adds a request with prompt t. If keep is set, the answer becomes part of t,
// as in a conversation.
func (g *generator) ask(at time.Duration, t *text, output int, session uint64, keep bool) {
	r := trace.Request{
		At: at, Input: t.tokens, Output: output, Estimate: t.tokens, Stream: true,
		Visible: t.keys[:len(t.keys):len(t.keys)], Session: trace.Hash(session), HasSession: session != 0,
	}
	if keep {
		t.extend(output)
	}
	// The engine caches the blocks of an answer too.
	r.Blocks = t.keys[:len(t.keys):len(t.keys)]
	g.requests = append(g.requests, r)
}

// session returns the number of a new session.
func (g *generator) session() uint64 { g.sessions++; return g.sessions }

// between returns a whole number from low to high, all equally likely.
func (g *generator) between(low, high int) int { return low + g.random.IntN(high-low+1) }

// around returns a length from a log-normal distribution: half are below median,
// and spread is the standard deviation of the logarithm. It is limited to low and
// high.
func (g *generator) around(median, spread float64, low, high int) int {
	x := median * math.Exp(spread*g.random.NormFloat64())
	return int(min(max(x, float64(low)), float64(high)))
}

// after returns a random time with that mean, as between independent events.
func (g *generator) after(mean time.Duration) time.Duration {
	return time.Duration(g.random.ExpFloat64() * float64(mean))
}

// popular returns an index below n. Index k is about (k+1)^-s as likely as the
// first.
func (g *generator) popular(n int, s float64) int {
	sum := 0.0
	for k := range n {
		sum += math.Pow(float64(k+1), -s)
	}
	x := g.random.Float64() * sum
	for k := range n {
		if x -= math.Pow(float64(k+1), -s); x < 0 {
			return k
		}
	}
	return n - 1
}

// poisson calls f at n independent times with that mean distance.
func (g *generator) poisson(n int, distance time.Duration, f func(at time.Duration)) {
	at := time.Duration(0)
	for range n {
		at += g.after(distance)
		f(at)
	}
	g.until = max(g.until, at)
}
