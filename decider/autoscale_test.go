package decider

import (
	"math"
	"testing"
	"time"
)

func TestAutoscaleFollowsDemand(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 4)
	if a := p.Autoscale(); a.Recommended != 0 || a.Replicas != 4 || a.Saturation != 0 {
		t.Fatalf("before any request: %+v", a)
	}
	// 10,000-token replicas, prompts of 1000 tokens that begin at once.
	send := func(perSecond int, d time.Duration) Autoscale {
		for end := clock.now + d; clock.now < end; clock.now += time.Second / time.Duration(perSecond) {
			d, id := decide(p, func(r *Request) { r.Input, r.Stream = 1000, true })
			p.FirstToken(id, []byte(d.Server))
			p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
		}
		return p.Autoscale()
	}
	a := send(10, 5*time.Minute)
	perRequest := prefillCost(1000, 1000)
	if math.Abs(a.Demand-10*perRequest) > perRequest {
		t.Errorf("a demand of %v, want %v", a.Demand, 10*perRequest)
	}
	if want := int(math.Ceil(4 * a.Demand / (scaleDemand * a.Capacity))); a.Recommended != max(1, want) || a.QueueRequests != 0 {
		t.Errorf("%+v, want %d replicas", a, want)
	}
	busy := send(100, 5*time.Minute)
	if busy.Demand < 9*a.Demand || busy.Saturation <= a.Saturation || busy.Recommended < a.Recommended {
		t.Errorf("ten times as many requests: %+v after %+v", busy, a)
	}
	clock.now += 5 * time.Minute
	if a = p.Autoscale(); a.Recommended != 1 {
		t.Errorf("five minutes of silence: %+v", a)
	}
	clock.now += 6 * time.Minute
	if a = p.Autoscale(); a.Recommended != 0 {
		t.Errorf("eleven minutes of silence: %+v", a)
	}
}

func TestAutoscaleSeesQueuesAndCaches(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 2)
	p.Engine("r0").FirstTokens(0)
	p.Engine("r1").FirstTokens(0)
	for range 40 {
		decide(p, func(r *Request) { r.Input = 8000 })
	}
	a := p.Autoscale()
	if a.QueueRequests != 40 || a.QueueTokens != 40*8000 || a.QueueSeconds < 10 || a.Recommended != 4 {
		t.Errorf("%+v", a)
	}
	q, _ := newTestPool(LeastWork{}, 4)
	for _, r := range []string{"r0", "r1", "r2", "r3"} {
		q.Engine(r).Signals(Signals{KVUsage: .95})
	}
	decide(q)
	if a := q.Autoscale(); math.Abs(a.KVUsage-.95) > .01 || a.Recommended != 5 {
		t.Errorf("%+v", a)
	}
}

func TestAPoolWithoutReplicasAsksForOne(t *testing.T) {
	p, _ := newTestPool(LeastWork{}, 0, func(c *PoolConfig) { c.RetryAfter = 1500 * time.Millisecond })
	d, _ := decide(p)
	if d.Status != 503 || d.Retry != 2 || d.Why != "no_replicas" || d.Reason == "" {
		t.Errorf("%+v", d)
	}
	if a := p.Autoscale(); a.Recommended != 1 || a.Demand == 0 {
		t.Errorf("%+v", a)
	}
	q, _ := newTestPool(LeastWork{}, 0)
	if d, _ := decide(q); d.Status != 0 {
		t.Errorf("without retry_after: %+v", d)
	}
}

// A prompt that is answered with an error was not computed: neither the speed nor
// what follows from it learns from that.
func TestErrorsTeachNothing(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 2)
	before := p.Autoscale().Capacity
	for range 10 {
		d, id := decide(p, document(1, 2000, 0))
		clock.now += 5 * time.Millisecond
		p.Finished(Outcome{ID: id, Server: []byte(d.Server), Status: 400, TTFT: 5 * time.Millisecond})
	}
	if after := p.Autoscale().Capacity; after != before {
		t.Errorf("refusals changed the speed from %.0f to %.0f tokens/s", before, after)
	}
	for _, r := range p.replicas {
		if m := r.cache; m.InUse() != 0 || m.Running() != 0 || r.promptWindow.begun != 0 {
			t.Errorf("%s: %d blocks in use, %d running and %d prompts begun after refusals", r.name, m.InUse(), m.Running(), r.promptWindow.begun)
		}
	}
}
