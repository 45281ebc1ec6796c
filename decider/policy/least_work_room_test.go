package policy

import (
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// Prompts that come one by one fill the caches evenly, so that few are computed twice.
func TestLeastWorkFillsTheEmptierCache(t *testing.T) {
	p := decidertest.New(LeastWork{}, 8, func(c *decider.PoolConfig) { c.CacheTokens = 64 * block })
	counts := map[string]int{}
	for n := range 40 {
		counts[p.Served(document(n, 8, 10)).Server]++
	}
	for s, c := range counts {
		if c != 5 {
			t.Errorf("%s has %d of 40 prompts, of which eight replicas can hold five each", s, c)
		}
	}
}

// Tokens in use slow a replica, but where they are answers for the most part, it is the
// requests that will fill it.
func TestLeastWorkCountsRequestsWhereAnswersAreLong(t *testing.T) {
	for _, policy := range []decider.Policy{LeastWork{}, LeastWorkLate{}} {
		// Each replica has ten prompts. The first one has them in its cache, and answers of that many tokens.
		better := func(answers float64) string {
			p := decidertest.New(policy, 2, func(c *decider.PoolConfig) { c.CacheTokens = 100_000 })
			for n := range 10 {
				p.FirstToken(p.SendTo("r0", document(n, 8, 0)), []byte("r0"))
				p.FirstToken(p.SendTo("r1", document(n, 6, 0)), []byte("r1"))
			}
			p.SetInFlight("r1", 2)
			p.Clock.Advance(2 * time.Second)
			for _, r := range []string{"r0", "r1"} {
				p.Engine(r).Signals(decider.Signals{Running: p.Replica(r).InFlight, KVUsage: p.Replica(r).KVUsage + answers/100_000})
			}
			terms := p.Terms(decidertest.Tokens(500))
			if terms["r0"]["decode"] < terms["r1"]["decode"] {
				return "r0"
			}
			return "r1"
		}
		if got := better(0); got != "r1" {
			t.Errorf("%T: %s, which has a third more tokens in use, is taken for the faster one", policy, got)
		}
		if got := better(50_000); got != "r0" {
			t.Errorf("%T: %s is taken for the faster one, with two requests more", policy, got)
		}
	}
}

// A replica where prompts wait for memory is not idle, however little of them is to be
// computed: each waits until others have ended.
func TestLeastWorkSeesPromptsThatWaitForMemory(t *testing.T) {
	for _, policy := range []decider.Policy{LeastWork{}, LeastWorkLate{}} {
		wait := func(waiting int, lasting time.Duration) float64 {
			p := decidertest.New(policy, 2, func(c *decider.PoolConfig) { c.CacheTokens = 100 * block })
			for n := range 3 {
				p.ServedBy("r0", document(n, 60, 0)) // so they are cached when they come again
			}
			for range 20 {
				id := p.SendTo("r1")
				p.FirstToken(id, []byte("r1"))
				p.Clock.Advance(lasting)
				p.End(id, "r1")
			}
			p.FirstToken(p.SendTo("r0", document(0, 60, 0)), []byte("r0"))
			for n := range waiting {
				p.SendTo("r0", document(1+n, 60, 0))
			}
			p.Clock.Advance(time.Second)
			p.Engine("r0").Signals(decider.Signals{Running: 1, Waiting: waiting, KVUsage: 0.6, CacheTokens: 100 * block})
			terms := p.Terms(document(9, 30, 0))["r0"]
			return terms["queue"] + terms["pressure"]
		}
		none, one, two := wait(0, 2*time.Second), wait(1, 2*time.Second), wait(2, 2*time.Second)
		if none != 0 || one <= 0 || two < 1.5*one {
			t.Errorf("%T: %.0f tokens where there is room, %.0f behind one that waits for memory, %.0f behind two", policy, none, one, two)
		}
		if slow := wait(1, 8*time.Second); slow < 2*one {
			t.Errorf("%T: %.0f tokens where requests last four times as long, else %.0f", policy, slow, one)
		}
	}
}

// What does not fit waits until other requests have ended, which takes longer than to
// compute as many tokens.
func TestLeastWorkAvoidsFullCaches(t *testing.T) {
	for _, policy := range []decider.Policy{LeastWork{}, LeastWorkLate{}} {
		p := decidertest.New(policy, 2, func(c *decider.PoolConfig) { c.CacheTokens = 100_000 })
		for _, r := range []string{"r0", "r1"} {
			p.SetInFlight(r, 40)
		}
		at := func(usage float64) map[string]float64 {
			p.Clock.Advance(2 * time.Second)
			p.Engine("r0").Signals(decider.Signals{Running: 40, KVUsage: usage})
			p.Engine("r1").Signals(decider.Signals{Running: 40, KVUsage: 0.5})
			return p.Terms(decidertest.Tokens(500))["r0"]
		}
		roomy, full := at(0.90), at(0.98) // 0.03 of the cache and the prompt do not fit
		if more := full["pressure"] - roomy["pressure"]; more < 5*3500 {
			t.Errorf("%T: %.0f tokens more for 3,500 that do not fit", policy, more)
		}
	}
}

// A request does not go where the engine runs as many sequences as it can, however much
// memory is free there.
func TestLeastWorkAvoidsEnginesWithoutPlaces(t *testing.T) {
	for _, policy := range []decider.Policy{LeastWork{}, LeastWorkLate{}} {
		p := decidertest.New(policy, 2, func(c *decider.PoolConfig) { c.CacheTokens = 1_000_000 })
		streamed := func(r *decider.Request) { r.Input, r.Stream = 500, true }
		p.SetInFlight("r1", 60)
		for range 40 {
			p.FirstToken(p.SendTo("r0", streamed), []byte("r0"))
		}
		p.SendTo("r0", streamed)
		report := func(places int) (string, float64) {
			p.Clock.Advance(time.Second)
			p.Engine("r0").Signals(decider.Signals{Running: places, Waiting: 41 - places, KVUsage: 0.1})
			p.Engine("r1").Signals(decider.Signals{Running: 60, KVUsage: 0.2})
			pressure := p.Terms(decidertest.Tokens(500))["r0"]["pressure"]
			return p.Served(decidertest.Tokens(500)).Server, pressure
		}
		if got, pressure := report(40); got != "r1" || pressure < 10_000 {
			t.Errorf("%T: chose %s; a pressure of %.0f tokens where no place is free", policy, got, pressure)
		}
		if got, pressure := report(41); got != "r0" || pressure != 0 {
			t.Errorf("%T: chose %s; a pressure of %.0f tokens where the engine begins what it gets", policy, got, pressure)
		}
	}
}
