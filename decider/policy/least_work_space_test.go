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
	for _, policy := range []decider.Policy{LeastWork{}, LeastWorkLate{}} {
		p := decidertest.New(policy, 4, func(c *decider.PoolConfig) { c.CacheTokens = 100_000 })
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
					t.Errorf("%T: %d conversations went to %v", policy, conversations, counts)
					break
				}
			}
		}
	}
}

// In late binding a long prompt displaces no more than a usual one: else it would leave the
// replica where other long ones were for one that only short ones use.
func TestLeastWorkLateTakesALongPromptForAUsualOne(t *testing.T) {
	p := full(LeastWorkLate{})
	const usual = 40*block + 40*block*20*block/40_000.0 // what full computes for each document
	for blocks, want := range map[int]float64{20: 20 * block, 400: usual} {
		for replica, terms := range p.Terms(document(1, blocks, 0)) {
			if got := terms["space"]; math.Abs(got-want) > want/10 {
				t.Errorf("%d blocks on %s: a price of %.0f tokens, want %.0f", blocks, replica, got, want)
			}
		}
	}
}

// A copy that nobody else asks for costs what attention adds as well. Once others ask for all
// of it, it costs its tokens. What they ask for of its beginning makes no difference.
func TestLeastWorkLateKeepsAPrefixAtHome(t *testing.T) {
	p := full(LeastWorkLate{})
	talk := func(r *decider.Request) {
		r.Stream, r.Input = true, 100*block+10
		r.Blocks = append(decidertest.Keys(nil, 1, 10), decidertest.Keys(nil, 2, 90)...)
	}
	const tokens, deep = 100 * block, 100*block + 100*block*50*block/40_000.0
	check := func(what, home string, want float64) {
		for replica, terms := range p.Terms(talk) {
			want := want
			if replica == home {
				want = 10
			}
			if got := terms["own"]; math.Abs(got-want) > want/50 {
				t.Errorf("%s: own %.0f on %s, want %.0f", what, got, replica, want)
			}
		}
	}
	home := p.Served(talk).Server
	check("after one turn", home, deep+10)
	for n := range 30 {
		p.End(p.SendTo(home, document(1, 10, 10+n)), home)
	}
	check("after requests for its beginning", home, deep+10)
	if d := p.Served(talk); d.Server != home {
		t.Errorf("the second turn went to %s, the first to %s", d.Server, home)
	}
	for range 30 {
		p.End(p.SendTo(home, talk), home)
	}
	check("after requests for all of it", home, tokens+10)
	decidertest.New(LeastWorkLate{}, 5).CheckTies(t, draws)
}
