package decider

import (
	"math/rand/v2"
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

// A few false samples do not lead a learned rate: one of twenty is false here, by a factor
// of ten or more, and perhaps of a prompt a hundred times as long.
func TestRateIsNotLed(t *testing.T) {
	const truth = 20_000.0
	for _, c := range []struct {
		name          string
		speed, length float64
	}{
		{"ten times too fast", 10, 1},
		{"the same, long", 10, 100},
		{"at once, long", 1e9, 100},
		{"ten times too slow", 0.1, 1},
		{"the same, long", 0.1, 100},
		{"long", 1, 100},
	} {
		random := rand.New(rand.NewPCG(1, 1))
		var e rateEstimator
		low, high := truth, truth
		for i := range 5000 {
			amount, speed := 1000+3000*random.Float64(), truth
			if random.IntN(20) == 0 {
				amount, speed = amount*c.length, truth*c.speed
			}
			rate := e.rate(truth)
			e.add(amount, amount/speed, rate)
			if i > 1500 {
				low, high = min(low, rate), max(high, rate)
			}
		}
		if low < 0.8*truth || high > 1.2*truth {
			t.Errorf("%s: %.2f to %.2f of the truth", c.name, low/truth, high/truth)
		}
	}
}

// What is true is learned, from a false beginning too: a first sample a thousand times as
// long as the others, or as short.
func TestRateIsLearned(t *testing.T) {
	for _, first := range []float64{1e-3, 1, 1e3} {
		for _, speed := range []float64{10, 3, 1.0 / 3, 0.1} {
			var e rateEstimator
			truth := speed * initialSpeed
			e.add(2000*first, 2000*first/initialSpeed, initialSpeed)
			for range int(600 * truth / 2000) { // ten minutes of work
				e.add(2000, 2000/truth, e.rate(truth))
			}
			if rate := e.rate(truth); rate < 0.9*truth || rate > 1.1*truth {
				t.Errorf("after a sample %g times as long: %.0f tokens/s, in truth %.0f", first, rate, truth)
			}
		}
	}
}
