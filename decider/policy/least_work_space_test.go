package policy

import (
	"math"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// full is a pool whose caches have turned over: what is new on a replica costs its tokens.
func full(policy decider.Policy) *decidertest.Pool {
	p := decidertest.New(policy, 4, func(c *decider.PoolConfig) { c.CacheTokens = 100_000 })
	for n := range 400 {
		p.ServedBy(decidertest.Name(n%4), document(100+n, 40, 0))
		p.Clock.Advance(time.Second)
		p.Decider.Sweep()
	}
	return p
}

// One request for a conversation does not make its prefix a hot one: a copy costs its
// full price until others ask for it.
func TestLeastWorkTakesATurnForNoDemand(t *testing.T) {
	p := full(LeastWork{})
	space := func() (home, most float64) {
		for replica, terms := range p.Terms(document(1, 20, 10)) {
			most = max(most, terms["space"])
			if replica == "r0" {
				home = terms["space"]
			}
		}
		return home, most
	}
	const prompt = 20 * block
	near := func(got, want float64) bool { return math.Abs(got-want) < want/10 }
	if home, most := space(); !near(home, prompt) || !near(most, prompt) {
		t.Errorf("a new prompt costs %v tokens, %v at most, want %v", home, most, prompt)
	}
	p.ServedBy("r0", document(1, 20, 10))
	if home, most := space(); home > prompt/100 || !near(most, prompt) {
		t.Errorf("after one turn a copy costs %v tokens, and %v at home, want %v and little", most, home, prompt)
	}
	for range 2 {
		p.ServedBy("r0", document(1, 20, 10))
	}
	if _, most := space(); most > prompt/2 {
		t.Errorf("after three requests at once a copy still costs %v tokens", most)
	}
}

// In empty caches nothing is displaced.
func TestLeastWorkFillsEmptyCaches(t *testing.T) {
	p := decidertest.New(LeastWork{}, 4)
	for replica, terms := range p.Terms(document(1, 20, 10)) {
		if terms["space"] != 0 {
			t.Errorf("%s: %v", replica, terms)
		}
	}
}

// Conversations that begin with the same text and go on for long use all replicas, before
// the caches are full and after: the first ones pull others to their replica only as far
// as that saves more than it displaces.
func TestLeastWorkSpreadsConversations(t *testing.T) {
	p := decidertest.New(LeastWork{}, 4, func(c *decider.PoolConfig) { c.CacheTokens = 100_000 })
	for part, conversations := range []int{12, 60, 60} {
		counts := map[string]int{}
		for n := range conversations {
			talk := func(r *decider.Request) {
				r.Stream, r.Input = true, 50*block
				r.Blocks = append(decidertest.Keys(nil, 1, 10), decidertest.Keys(nil, 1000*(part+1)+n, 40)...)
			}
			counts[p.Served(talk).Server]++
			p.Clock.Advance(time.Second)
			for range 3 {
				p.Served(talk)
				p.Clock.Advance(time.Second)
				p.Decider.Sweep()
			}
		}
		for i := range 4 {
			if c := counts[decidertest.Name(i)]; c < conversations/8 {
				t.Errorf("%d conversations went to %v", conversations, counts)
				break
			}
		}
	}
}

func TestLeastWorkLateKeepsAPrefixAtHome(t *testing.T) {
	p := full(LeastWorkLate{})
	home := p.Served(document(1, 20, 10))
	for replica, terms := range p.Terms(document(1, 20, 10)) {
		space, own := 20.0*block, float64(20*block+10)
		if replica == home.Server {
			space, own = 0, 10
		}
		if terms["space"] != space || terms["own"] != own {
			t.Errorf("%s: %v, want space %v and own %v", replica, terms, space, own)
		}
	}
	if d := p.Served(document(1, 20, 10)); d.Server != home.Server {
		t.Errorf("the second turn went to %s, the first to %s", d.Server, home.Server)
	}
	decidertest.New(LeastWorkLate{}, 5).CheckTies(t, draws)
}
