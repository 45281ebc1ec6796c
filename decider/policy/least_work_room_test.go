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

// A replica that will be full when its requests have grown gets fewer, long before it
// is full.
func TestLeastWorkLooksAheadOfAnswers(t *testing.T) {
	for _, policy := range []decider.Policy{LeastWork{}, LeastWorkLate{}} {
		p := decidertest.New(policy, 2, func(c *decider.PoolConfig) { c.CacheTokens = 100_000 })
		pressure := func(running int, usage float64) float64 {
			p.Clock.Advance(2 * time.Second)
			for _, r := range []string{"r0", "r1"} {
				p.Engine(r).Signals(decider.Signals{Running: running, KVUsage: usage})
			}
			return p.Terms(decidertest.Tokens(500))["r0"]["pressure"]
		}
		p.SetInFlight("r0", 40)
		p.SetInFlight("r1", 40)
		if got := pressure(40, 0.2); got != 0 {
			t.Errorf("%T: a pressure of %.0f tokens, with room for five times as many", policy, got)
		}
		if got := pressure(40, 0.6); got <= 0 {
			t.Errorf("%T: no pressure, but the requests there will need twice the room that is left", policy)
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
