package policy

import (
	"math"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// hot is a pool of four replicas, of which r0 and r1 have a prefix that has been requested
// for half a minute, each replica with so many requests that have had their first token.
func hot(policy decider.Policy, inFlight ...int) *decidertest.Pool {
	p := decidertest.New(policy, 4)
	for n := range 60 {
		p.Clock.Advance(500 * time.Millisecond)
		p.ServedBy(decidertest.Name(n%2), document(1, 80, 10))
	}
	for i, n := range inFlight {
		server := decidertest.Name(i)
		for range n {
			p.FirstToken(p.SendTo(server, decidertest.Tokens(10)), []byte(server))
		}
	}
	return p
}

// A prefix that is requested often is copied where the replicas that have it have more
// requests than others, not where they only have a queue: a copy takes longer than most
// queues, and while the first one is computed, the next request sees the same queues.
func TestLeastWorkCopiesForLoadThatLasts(t *testing.T) {
	own := func(p *decidertest.Pool, replica string) float64 { return p.Terms(document(1, 80, 10))[replica]["own"] }
	whole := own(hot(LeastWork{}, 0, 0, 200, 0), "r2")
	if cold := decidertest.New(LeastWork{}, 4); math.Abs(whole-own(cold, "r2")) > 1 {
		t.Errorf("on a replica with more requests a copy counts %.0f tokens, want all of it", whole)
	}
	level := hot(LeastWork{}, 60, 60, 60, 60)
	for n := range 4 {
		level.SendTo(decidertest.Name(n%2), document(100+n, 40, 0))
	}
	if got := own(level, "r2"); got < 0.8*whole {
		t.Errorf("with equally many requests everywhere, a copy counts %.0f tokens of %.0f", got, whole)
	}
	if got := own(hot(LeastWork{}, 60, 60, 10, 60), "r2"); got > 0.7*whole {
		t.Errorf("on a replica with few requests a copy counts %.0f tokens of %.0f", got, whole)
	}
}

// The more replicas have a prefix already, the fewer requests another copy serves. One that
// is being computed counts.
func TestLeastWorkCountsCopiesThatAreComputed(t *testing.T) {
	p := hot(LeastWork{}, 20, 20, 1, 1)
	own := func() float64 { return p.Terms(document(1, 80, 10))["r3"]["own"] }
	before := own()
	p.SendTo("r2", document(1, 80, 10))
	if got := own(); got < 1.1*before {
		t.Errorf("beside a copy that is being computed, another one counts %.0f tokens, and %.0f without it", got, before)
	}
}
