package decider

import (
	"math"
	"testing"
)

func TestLengths(t *testing.T) {
	var l lengths
	if got := l.shorter(100); got != 0 {
		t.Errorf("of nothing, %v tokens a request are shorter", got)
	}
	for range 40_000 { // long enough to fade
		for range 9 {
			l.add(100)
		}
		l.add(900)
	}
	for cost, want := range map[float64]float64{0: 0, 50: 0, 300: 90, 2000: 180, 1e300: 180, math.Inf(1): 180} {
		if got := l.shorter(cost); math.Abs(got-want) > 2 {
			t.Errorf("%.0f tokens a request come in those of less than %v each, want %v", got, cost, want)
		}
	}
	for range 10 * lengthsOver {
		l.add(5000)
	}
	if got := l.shorter(3000); got > 0.1 {
		t.Errorf("%.1f tokens a request still come in those that stopped coming", got)
	}
}

// Held requests count in the pool's traffic when they arrive. The longest ones are held the
// longest, and the mean length must not jump when they are sent.
func TestHeldRequestsCountOnArrival(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1, withAdmission(Admission{}))
	last := submit(p)
	var held []*client
	for range 5 {
		held = append(held, submit(p, withInput(100_000)))
	}
	usual, rate := p.load.typical, p.load.demand.rate(clock.now)
	if usual < prefillCost(1000, 1000)+prefillCost(100_000, 100_000)/typicalOver {
		t.Errorf("a usual request costs %.0f, with five held ones of %.0f", usual, prefillCost(100_000, 100_000))
	}
	if shorter := p.load.demand.arrivals(clock.now) * p.load.lengths.shorter(1e9); math.Abs(shorter-rate) > rate/1000 {
		t.Errorf("%.0f tokens/s come in all, and %.0f in requests of any length", rate, shorter)
	}
	for range held {
		finish(p, last)
		for _, c := range held {
			if c.answered() && p.find(c.r.ID) != nil {
				last = c
			}
		}
		if got := p.load.typical; got != usual {
			t.Fatalf("a held request was sent: a usual one costs %.0f now, and %.0f before", got, usual)
		}
		if got := p.load.demand.rate(clock.now); got != rate {
			t.Fatalf("a held request was sent: %.0f tokens/s come now, and %.0f before", got, rate)
		}
	}
	if !held[4].answered() {
		t.Error("the last one is still held")
	}
}
