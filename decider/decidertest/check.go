package decidertest

import (
	"fmt"
	"math"
	"testing"

	"pointsman/decider"
)

// Draws is how many draws the distribution tests make.
const Draws = 60_000

// CheckShare fails the test unless got of n draws is within five standard deviations of the
// expectation for the probability share.
func CheckShare(t testing.TB, what string, got, n int, share float64) {
	t.Helper()
	mean := float64(n) * share
	if sd := math.Sqrt(mean * (1 - share)); math.Abs(float64(got)-mean) > 5*sd {
		t.Errorf("%s: %d of %d, want %.0f ± %.0f", what, got, n, mean, 5*sd)
	}
}

// CheckTies fails the test unless n requests that find all replicas equal are
// spread evenly at random over all of them.
func (p *Pool) CheckTies(t testing.TB, n int, change ...func(*decider.Request)) {
	t.Helper()
	counts := p.OneByOne(n, change...)
	for _, r := range p.Config.Replicas {
		CheckShare(t, "ties to "+r.Name, counts[r.Name], n, 1/float64(len(p.Config.Replicas)))
	}
}

// CheckAllocations fails the test if a request allocates in steady state, from
// its decision to its end. change prepares the n-th request; after as many as
// warmUp the pool must be in its steady state.
func (p *Pool) CheckAllocations(t testing.TB, warmUp int, change func(r *decider.Request, n int)) {
	t.Helper()
	names := map[string][]byte{}
	for _, r := range p.Config.Replicas {
		names[r.Name] = []byte(r.Name)
	}
	var r decider.Request
	var d decider.Decision
	n := 0
	step := func() {
		n++
		r = decider.Request{ID: decider.ID{byte(n), byte(n >> 8), byte(n >> 16)}, Pool: p.Pool, Blocks: r.Blocks[:0]}
		change(&r, n)
		p.Decide(&r, &d)
		served := names[d.Server]
		p.FirstToken(r.ID, served)
		p.Finished(decider.Outcome{ID: r.ID, Server: served})
	}
	for range warmUp {
		step()
	}
	if a := testing.AllocsPerRun(1000, step); a != 0 {
		t.Errorf("%s: %v allocations a request", fmt.Sprintf("%T", p.Config.Policy), a)
	}
}
