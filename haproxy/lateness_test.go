package haproxy

import (
	"testing"
	"time"
)

// TestLateness: HAProxy's clock is hours off, drifts and is set, forward and back. How
// late lines come is known all the same.
func TestLateness(t *testing.T) {
	var l lateness
	now, clock := time.Hour, -7*time.Hour
	step := func(late, want time.Duration) {
		t.Helper()
		now += time.Second
		if got := l.of(now+clock-late, now); got != want {
			t.Errorf("after %v: %v, want %v", now, got, want)
		}
	}
	for _, set := range []time.Duration{0, 9 * time.Hour, -30 * time.Hour, 6 * time.Second, -6 * time.Second} {
		clock += set
		step(0, 0)
		step(300*time.Millisecond, 300*time.Millisecond)
		step(0, 0)
	}
	for range 1000 { // a clock that loses a millisecond in a second
		clock -= time.Millisecond
		now += time.Second
		if got := l.of(now+clock, now); got > 150*time.Millisecond {
			t.Fatalf("after %v: %v", now, got)
		}
	}
}
