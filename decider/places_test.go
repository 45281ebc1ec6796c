package decider

import (
	"math"
	"testing"
	"time"
)

// An engine that lets requests wait although it computes no prompt and has memory runs as
// many sequences as it can. One more waits for an end.
func TestPlacesOfAnEngine(t *testing.T) {
	const running = 8
	for _, c := range []struct {
		what    string
		after   time.Duration
		reports Signals
		waits   bool
	}{
		{"it waits for long", time.Second, Signals{Running: running, Waiting: 1, KVUsage: 0.5}, true},
		{"it has just come", 10 * time.Millisecond, Signals{Running: running, Waiting: 1, KVUsage: 0.5}, false},
		{"it is computed", time.Second, Signals{Running: running + 1, KVUsage: 0.5}, false},
		{"an earlier one is computed", time.Second, Signals{Running: running, Waiting: 2, KVUsage: 0.5}, false},
		{"others may be computed", time.Second, Signals{Running: running + 2, Waiting: 1, KVUsage: 0.5}, false},
		{"there is no memory", time.Second, Signals{Running: running, Waiting: 1, KVUsage: 0.95}, false},
		{"nonsense", time.Second, Signals{Running: math.MinInt, Waiting: 1, KVUsage: math.NaN()}, false},
	} {
		p, clock := newTestPool(LeastWork{}, 1, func(c *PoolConfig) { c.CacheTokens = 10_000 })
		r, e := p.replicas[0], p.Engine("r0")
		sent := make([]ID, running)
		for i := range sent {
			_, sent[i] = decide(p, func(r *Request) { r.Stream = true })
			p.FirstToken(sent[i], []byte("r0"))
		}
		_, last := decide(p, func(r *Request) { r.Stream = true })
		clock.now += c.after
		e.Signals(c.reports)
		wait := r.PlaceWait(running, clock.now)
		if (wait > 0) != c.waits {
			t.Errorf("%s: one more waits %v s for a place", c.what, wait)
		}
		if !c.waits {
			continue
		}
		if got := r.PlaceWait(running-1, clock.now); got != 0 {
			t.Errorf("with a free place it waits %v s", got)
		}
		if two := r.PlaceWait(running+1, clock.now); two != 2*wait {
			t.Errorf("behind another one it waits %v s, alone %v", two, wait)
		}
		for _, id := range sent[:4] {
			p.Finished(Outcome{ID: id, Server: []byte("r0")})
		}
		if got := r.PlaceWait(running, clock.now); got <= 0 || got > 10 {
			t.Errorf("after four ends in a second it waits %v s, and %v before", got, wait)
		}
		p.FirstToken(last, []byte("r0"))
		e.Signals(Signals{Running: running + 1, KVUsage: 0.5})
		if got := r.PlaceWait(running, clock.now); got != 0 {
			t.Errorf("the engine runs more sequences, but one waits %v s", got)
		}
	}
}
