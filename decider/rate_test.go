package decider

import (
	"testing"
	"time"
)

// A learned speed decays with time: nothing else brings back a replica that is avoided
// because it was slow.
func TestSpeedsFade(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 2)
	p.sweep()
	slow := p.replicas[1]
	for range 100 {
		p.load.learn(slow, 10_000, 5)
		p.load.learn(p.replicas[0], 10_000, 1)
	}
	before := p.load.speedOf(slow)
	for range 3600 {
		clock.now += time.Second
		p.sweep()
	}
	if after := p.load.speedOf(slow); before > 5000 || after < 0.8*initialSpeed {
		t.Errorf("%.0f tokens/s, after an hour without traffic %.0f", before, after)
	}
}
