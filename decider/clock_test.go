package decider

import (
	"testing"
	"time"
)

// TestClockOfTheProxy: the proxy measures times by a clock that may be set meanwhile. A
// first byte that came hours after the request, which the pool decided a second ago,
// counts as a second.
func TestClockOfTheProxy(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1)
	_, id := decide(p, func(r *Request) { r.Stream = true })
	clock.now += time.Second
	if got := p.Finished(Outcome{ID: id, Server: []byte("r0"), TTFT: 3 * time.Hour}); got != time.Second {
		t.Errorf("believed %v, want a second", got)
	}
	if ttft, ok := p.replicas[0].TTFT(clock.now); !ok || ttft > time.Second {
		t.Errorf("the replica's is %v", ttft)
	}
}
