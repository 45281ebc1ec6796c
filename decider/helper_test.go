package decider

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// testClock is a clock that a test moves.
type testClock struct{ now time.Duration }

func (c *testClock) tell() time.Duration { return c.now }

// seeds gives the seeds 1, 2, 3 …
func seeds() func() uint64 {
	n := uint64(0)
	return func() uint64 { n++; return n }
}

func replicas(n int) []ReplicaConfig {
	list := make([]ReplicaConfig, n)
	for i := range list {
		list[i] = ReplicaConfig{Name: fmt.Sprintf("r%d", i), Address: fmt.Sprintf("127.0.0.1:%d", 9000+i)}
	}
	return list
}

// newTestPool returns a pool of n replicas under policy, and its clock.
func newTestPool(policy Policy, n int, change ...func(*PoolConfig)) (*Pool, *testClock) {
	c := PoolConfig{Name: "llama", Models: []string{"m"}, Policy: policy, PolicyName: "test", Replicas: replicas(n)}
	for _, f := range change {
		f(&c)
	}
	clock := &testClock{}
	d := New(clock.tell, seeds())
	d.Apply(Config{Pools: []PoolConfig{c}})
	return d.Pools()[0], clock
}

var ids = rand.New(rand.NewPCG(1, 2))

func newID() (id ID) {
	for i := range id {
		id[i] = byte(ids.Uint32())
	}
	return id
}

// decide sends one request through the pool and returns the decision.
func decide(p *Pool, change ...func(*Request)) (Decision, ID) {
	r := Request{ID: newID(), Pool: p, Input: 100, Output: -1}
	for _, f := range change {
		f(&r)
	}
	var d Decision
	p.Decide(&r, &d)
	return d, r.ID
}

func inSession(n int) func(*Request) {
	return func(r *Request) { r.Session, r.HasSession = scramble(uint64(n)), true }
}

// askedBy has a process of the proxy ask.
func askedBy(origin uint64) func(*Request) { return func(r *Request) { r.Origin = origin } }

// tally counts the decisions of n requests by server; each request ends before
// the next one when finish is set.
func tally(p *Pool, n int, finish bool, change ...func(*Request)) map[string]int {
	counts := map[string]int{}
	for range n {
		d, id := decide(p, change...)
		counts[d.Server]++
		if finish {
			p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
		}
	}
	return counts
}

const draws = 60_000

// near fails unless got is within five standard deviations of a binomial
// count with chance share.
func near(t *testing.T, what string, got int, share float64) {
	t.Helper()
	mean := draws * share
	if sd := math.Sqrt(mean * (1 - share)); math.Abs(float64(got)-mean) > 5*sd {
		t.Errorf("%s: %d of %d, want %.0f ± %.0f", what, got, draws, mean, 5*sd)
	}
}
