package decider

import (
	"math"
	"testing"
	"time"
)

func TestTurnover(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 3, func(c *PoolConfig) { c.CacheTokens = 100_000 })
	compute := func(replica, tokens int) {
		p.turnover.add(p.replicas[replica], tokens)
		clock.now += time.Second
		p.sweep()
	}
	for range 100 { // much less than the caches hold
		compute(0, 100)
	}
	if a, b := p.replicas[0].Turnover(), p.replicas[1].Turnover(); a < .09 || a > .1 || b != 0 {
		t.Errorf("a tenth of a cache computed: %v, nothing: %v", a, b)
	}
	for range 3000 { // ten times what they hold
		compute(0, 500)
		compute(1, 500)
	}
	if a, b, c := p.replicas[0].Turnover(), p.replicas[1].Turnover(), p.replicas[2].Turnover(); math.Abs(a-1.5) > .02 || math.Abs(b-1.5) > .02 || c != 0 {
		t.Errorf("two of three compute all: %v %v %v, want 1.5, 1.5, 0", a, b, c)
	}
	p.Engine("r0").Restarted()
	if a, b := p.replicas[0].Turnover(), p.replicas[1].Turnover(); a != 0 || math.Abs(b-1.5) > .02 {
		t.Errorf("after a restart: %v, the other one %v", a, b)
	}
}
