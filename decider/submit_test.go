package decider

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pointsman/decider/queue"
)

// Limits refuse at once, deadlines as soon as they cannot be met, and the answer
// says when to come back.
func TestAdmissionRefuses(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 1, withAdmission(Admission{Bands: []queue.Band{
		{Name: "a", MaxRequests: 2, TTL: 3 * time.Second}, {Name: "b", MaxBytes: 100},
	}}))
	running := submit(p)
	first, second := submit(p), submit(p)
	if c := submit(p); c.held || c.d.Status != 429 || c.d.Why != "queue_full" || c.d.Retry != 1 {
		t.Errorf("above the limit: %+v", c.d)
	}
	submit(p, inBand(1), func(r *Request) { r.Bytes = 60 })
	if c := submit(p, inBand(1), func(r *Request) { r.Bytes = 60 }); c.held || c.d.Why != "queue_full" {
		t.Errorf("above the limit of bytes: %+v", c.d)
	}
	// 100,000 tokens wait, at 10,000 a second: come back in 10 s.
	submit(p, inBand(1), withInput(100_000))
	if c := submit(p, inBand(1), func(r *Request) { r.Bytes = 101 }); c.d.Retry < 10 || c.d.Retry > 11 {
		t.Errorf("come back in %d s, want 10", c.d.Retry)
	}
	// A prompt of 50,000 tokens takes 5 s and more.
	if c := submit(p, withInput(50_000), func(r *Request) { r.Deadline = clock.now + 4*time.Second }); c.held || c.d.Why != "deadline" {
		t.Errorf("an impossible deadline: %+v", c.d)
	}
	late := submit(p, inBand(1), withInput(10_000), func(r *Request) { r.Deadline = clock.now + 2500*time.Millisecond })
	if !late.held {
		t.Fatalf("a possible deadline: %+v", late.d)
	}
	clock.now = 1400 * time.Millisecond
	p.sweep()
	if late.answered() {
		t.Error("refused with 1.1 s left for 1 s of work")
	}
	clock.now = 1600 * time.Millisecond
	p.sweep()
	if !late.answered() || late.d.Why != "deadline" || late.d.Status != 429 {
		t.Errorf("with 0.9 s left for 1 s of work: %+v", late.d)
	}
	clock.now = 3 * time.Second
	p.sweep()
	for _, c := range []*client{first, second} {
		if c.calls != 1 || c.d.Why != "waited_too_long" || c.d.Wait != 3*time.Second {
			t.Errorf("after its time to live: %+v", c.d)
		}
	}
	s := p.Status().Admission
	counts := s.Bands[0].Counts[queue.OtherTenants]
	if counts.Refused["queue_full"] != 1 || counts.Refused["waited_too_long"] != 2 || counts.Refused["deadline"] != 1 || s.Bands[1].Queued != 2 || s.Bands[1].Tokens != 101_000 {
		t.Errorf("status %+v", s)
	}
	finish(p, running)
}

// Requests beyond the limits of a band go to the pool that it names.
func TestAdmissionSpills(t *testing.T) {
	clock := &testClock{}
	d := New(clock.tell, seeds())
	a := &Admission{Hold: true, Bands: []queue.Band{{Name: "a", MaxRequests: 1, Spill: "other"}}}
	d.Apply(Config{Pools: []PoolConfig{
		{Name: "one", Policy: LeastWork{}, Replicas: replicas(1), Limit: 1, Admission: a},
		{Name: "other", Policy: LeastWork{}, Replicas: replicas(1)},
	}})
	one := d.Pool("one")
	submit(one)
	submit(one)
	if c := submit(one); c.held || c.d.Pool != "other" || c.d.Server != "r0" {
		t.Errorf("%+v", c.d)
	}
	if c := submit(one, func(r *Request) { r.Fixed = true }); c.d.Status != 429 {
		t.Errorf("the proxy has chosen the pool, yet %+v", c.d)
	}
}

// The proxy gets the order in which it is to serve its queues.
func TestAdmissionInTheProxy(t *testing.T) {
	p, clock := newTestPool(LeastRequests{}, 2, withAdmission(Admission{Bands: []queue.Band{{Name: "a"}, {Name: "b", MaxRequests: 3}}}), func(c *PoolConfig) {
		c.Admission.Hold = false
	})
	var sent []*client
	for range 4 {
		sent = append(sent, submit(p, inBand(1), ofTenant(1)))
	}
	for i, c := range sent {
		if c.held || c.d.Server == "" || c.d.Class != 10 || !c.d.Ordered {
			t.Fatalf("request %d: %+v", i, c.d)
		}
		if i > 0 && c.d.Offset <= sent[i-1].d.Offset {
			t.Errorf("offsets of one tenant do not grow: %d, then %d", sent[i-1].d.Offset, c.d.Offset)
		}
	}
	if c := submit(p, inBand(1), ofTenant(2)); c.d.Offset != 0 {
		t.Errorf("another tenant's offset is %d", c.d.Offset)
	}
	if c := submit(p, inBand(1)); c.d.Status != 429 || c.d.Why != "queue_full" {
		t.Errorf("3 of band b wait: %+v", c.d)
	}
	if c := submit(p); c.d.Status != 0 || c.d.Class != 0 {
		t.Errorf("band a: %+v", c.d)
	}
	for i, c := range sent[:2] {
		clock.now = 10 * time.Second * time.Duration(i+1) / 2
		finish(p, c)
	}
	if c := submit(p, inBand(1), ofTenant(2)); c.d.Status != 0 {
		t.Errorf("2 of band b wait: %+v", c.d)
	}
	// Two ended in ten seconds or so, and four are ahead.
	if c := submit(p, inBand(1), func(r *Request) { r.Deadline = clock.now + 5*time.Second }); c.d.Why != "deadline" {
		t.Errorf("a deadline before its turn: %+v", c.d)
	}
}

// Holding and assigning allocate nothing once the queue has grown.
func TestSubmitDoesNotAllocate(t *testing.T) {
	p, clock := newTestPool(LeastWork{}, 4, withAdmission(Admission{Bands: []queue.Band{{Name: "a", Order: queue.ByWork}, {Name: "b"}}}))
	ring := make([]client, 64)
	k := 0
	step := func() {
		clock.now += time.Millisecond
		c := &ring[k%len(ring)]
		if k >= len(ring) {
			if !c.answered() {
				p.Finished(Outcome{ID: c.r.ID, End: ClientGone})
			} else {
				finish(p, c)
			}
		}
		*c = client{r: Request{ID: ID{byte(k), byte(k >> 8), byte(k >> 16)}, Pool: p, Input: 100 + k%7, Output: -1, Stream: true, Band: k % 2, Tenant: uint64(k % 5)}}
		c.held = p.Submit(&c.r, &c.d, c)
		k++
	}
	for range 2000 {
		step()
	}
	if a := testing.AllocsPerRun(2000, step); a > 0.1 {
		t.Errorf("%v allocations a request", a)
	}
}

// BenchmarkSubmit is a request that finds 10,000 waiting, and one that leaves.
func BenchmarkSubmit(b *testing.B) {
	for _, waiting := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			p, _ := newTestPool(LeastWork{}, 8, withAdmission(Admission{Bands: []queue.Band{{Name: "a", TTL: time.Hour, MaxRequests: 1 << 20, Order: queue.ByWork}}}))
			list := make([]*client, 0, waiting+b.N+8)
			for range waiting + 8 {
				list = append(list, submit(p, withInput(100+len(list)%5000)))
			}
			running := slices.Clone(list[:8])
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				c := &client{r: Request{ID: ID{1, byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}, Pool: p, Input: 100 + i%5000, Output: -1, Stream: true}}
				c.held = p.Submit(&c.r, &c.d, c)
				finish(p, running[i%8])
				if c.d.Server != "" {
					running[i%8] = c
				}
			}
		})
	}
}
