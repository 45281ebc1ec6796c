package decider

import (
	"math"
	"testing"
	"time"
)

// A request stays for as long as the ones that run are many times those that end in a second.
func TestStay(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 2)
	stay := func() float64 {
		p.view.Now = clock.now
		return p.view.Occupancy().Stay
	}
	if got := stay(); got != longestStay {
		t.Errorf("nothing has ended: %v s", got)
	}
	// Five at a time, and one ends every two seconds.
	var running []ID
	for range 200 {
		d, id := decide(p, func(r *Request) { r.Stream = true })
		p.FirstToken(id, []byte(d.Server))
		if running = append(running, id); len(running) > 5 {
			p.Finished(Outcome{ID: running[0], Server: []byte(p.find(running[0]).replica.name)})
			running = running[1:]
		}
		clock.now += 2 * time.Second
	}
	if got := stay(); math.Abs(got-10) > 1 {
		t.Errorf("five requests of ten seconds stay %v s", got)
	}
	// What no engine has begun frees no memory.
	for range 1000 {
		d, id := decide(p)
		p.Finished(Outcome{ID: id, Server: []byte(d.Server), Status: 400})
	}
	clock.now += occupancyEvery
	if got := stay(); math.Abs(got-10) > 1 {
		t.Errorf("after refused requests they stay %v s", got)
	}
}

// KV cache in use beyond the prompts in flight is output.
func TestOutputShare(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 2, func(c *PoolConfig) { c.CacheTokens = 10_000 })
	running := 0
	share := func(usage float64) float64 {
		clock.now += time.Second
		p.Engine("r0").Signals(Signals{Running: running, KVUsage: usage})
		p.view.Now = clock.now
		return p.view.Occupancy().OutputShare
	}
	if got := share(0); got != 0 {
		t.Errorf("of nothing in use %v is output", got)
	}
	for range 2 {
		decide(p, func(r *Request) { r.Input = 1000 })
	}
	own := p.account.usage(p.replicas[0])
	if own <= 0 {
		t.Fatal("r0 has no prompt")
	}
	running = p.replicas[0].inFlight
	for _, output := range []float64{0, 1, 3} {
		if got, want := share(own*(1+output)), output/(1+output); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v times as much output as prompts: a share of %v, want %v", output, got, want)
		}
	}
	// Requests from elsewhere have prompts, too.
	running *= 4
	if got := share(4 * own); got != 0 {
		t.Errorf("with three times as many requests from elsewhere as ours, a share of %v", got)
	}
	if got := share(math.NaN()); got != 0 {
		t.Errorf("of a usage that is no number, a share of %v", got)
	}
}
