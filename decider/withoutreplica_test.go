package decider

import (
	"fmt"
	"testing"
	"time"

	"pointsman/decider/queue"
)

// holdingAlways makes a pool's configuration one that holds requests also while no
// replica is open. The replicas have no limits.
func holdingAlways(bands ...queue.Band) func(*PoolConfig) {
	if len(bands) == 0 {
		bands = []queue.Band{{Name: "all", TTL: time.Minute}}
	}
	return func(c *PoolConfig) { c.Admission = &Admission{Hold: true, HoldWithoutReplica: true, Bands: bands} }
}

// at moves the clock to t in the steps in which the owner calls Dispatch.
func (c *testClock) at(t time.Duration, p *Pool, each func()) {
	for c.now < t {
		c.now = min(c.now+20*time.Millisecond, t)
		each()
		p.mu.Lock()
		p.admission.dispatch(c.now)
		p.mu.Unlock()
	}
}

// Requests that find no replica wait until one opens. It gets as much as it can
// compute soon, and the rest later in their order.
func TestWithoutReplicaDispatchesAtTheUsualPace(t *testing.T) {
	for _, how := range []string{"found", "up", "well"} {
		t.Run(how, func(t *testing.T) {
			p, clock := newTestPool(LeastWork{}, 1, holdingAlways())
			report := func(up bool) {}
			open := func() { report(true) }
			switch how {
			case "found":
				c := p.config
				c.Replicas = nil
				p.configure(c)
				open = func() { c.Replicas = replicas(1); p.configure(c) }
			case "up":
				report = func(up bool) { p.Discovered([]ReplicaState{{Name: "r0", Up: up, Weight: 1}}) }
			case "well":
				open = func() { p.Checked("r0", true) }
				p.Checked("r0", false)
			}
			report(false)
			var all []*client
			for range 20 {
				c := submit(p, withInput(2000))
				if !c.held {
					t.Fatalf("answered at once: %+v", c.d)
				}
				all = append(all, c)
			}
			s, a := p.Status().Admission, p.Autoscale()
			if !s.NoReplica || s.Bands[0].Queued != 20 || a.Recommended != 1 || a.QueueRequests != 20 || a.QueueTokens != 40_000 {
				t.Errorf("while none is open: %+v, %+v", s, a)
			}
			if x := p.Explain(&all[0].r); x.Queue == nil || !x.Queue.NoReplica || x.Server != "" || x.Refused != 0 {
				t.Errorf("explained as %+v", x)
			}
			clock.at(40*time.Second, p, func() { report(false) })
			for i, c := range all {
				if c.answered() {
					t.Fatalf("request %d is answered while none is open: %+v", i, c.d)
				}
			}
			open()
			assigned := func() (n int) {
				for i, c := range all {
					if c.answered() && c.d.Server == "r0" {
						if n++; n <= i {
							t.Fatalf("request %d is assigned before those ahead of it", i)
						}
					}
				}
				return n
			}
			// It is not believed lost for the silence before it opened.
			clock.at(clock.now+100*time.Millisecond, p, func() {})
			if n := assigned(); n != 1 {
				t.Fatalf("%d are assigned before the first is computed", n)
			}
			if all[0].d.Wait != 40*time.Second {
				t.Errorf("assigned after %v", all[0].d.Wait)
			}
			for i, c := range all {
				if !c.answered() {
					t.Fatalf("request %d waits while the replica is idle", i)
				}
				p.FirstToken(c.r.ID, []byte("r0"))
				finish(p, c)
				clock.now += 200 * time.Millisecond
			}
			if n, took := assigned(), p.Autoscale(); n != 20 || took.QueueRequests != 0 {
				t.Errorf("%d are assigned at the end, %+v", n, took)
			}
		})
	}
}

// A request for which no replica came gets a 503 that says when to come back, or
// what the proxy would do alone. So does one that cannot meet its deadline any
// more.
func TestWithoutReplicaRequestsAreRefused(t *testing.T) {
	for _, retry := range []time.Duration{0, 20 * time.Second} {
		t.Run(fmt.Sprint(retry), func(t *testing.T) {
			p, clock := newTestPool(LeastWork{}, 0, holdingAlways(queue.Band{Name: "a", TTL: 10 * time.Second, MaxRequests: 3, MaxBytes: 1000}),
				func(c *PoolConfig) { c.RetryAfter = retry })
			waits := submit(p)
			late := submit(p, withInput(10_000), func(r *Request) { r.Deadline = 4 * time.Second })
			tooLate := submit(p, withInput(100_000), func(r *Request) { r.Deadline = 4 * time.Second })
			if tooLate.held {
				t.Error("a request waits for a deadline that it cannot make")
			}
			if c := submit(p, func(r *Request) { r.Bytes = 1001 }); c.held || c.d.Status != 429 || c.d.Why != "queue_full" || c.d.Retry < int(retry.Seconds()) || c.d.Retry > 30 {
				t.Errorf("above the limit of bytes: %+v", c.d)
			}
			submit(p)
			if c := submit(p); c.held || c.d.Why != "queue_full" {
				t.Errorf("above the limit of requests: %+v", c.d)
			}
			clock.at(2900*time.Millisecond, p, func() {})
			if late.answered() {
				t.Error("given up with 1.1 s left for 1 s of work")
			}
			clock.at(9900*time.Millisecond, p, func() {})
			if !late.answered() || waits.answered() {
				t.Errorf("the deadline passed: %+v; the time to live has not: %+v", late.d, waits.d)
			}
			clock.at(10*time.Second, p, func() {})
			for _, c := range []*client{waits, late, tooLate} {
				want := Decision{Pool: "llama", Band: "a", Wait: c.d.Wait, Why: "no_replicas"}
				if retry > 0 {
					want.Status, want.Reason, want.Retry = 503, noReplica, 20
				}
				if !c.answered() || c.d != want {
					t.Errorf("got %+v, want %+v", c.d, want)
				}
			}
			if waits.d.Wait != 10*time.Second || late.d.Wait != 3*time.Second {
				t.Errorf("held for %v and %v", waits.d.Wait, late.d.Wait)
			}
			shed := p.Status().Admission.Bands[0].Counts[queue.OtherTenants].Refused
			if want := uint64(4); retry > 0 && shed["no_replica"] != want || retry == 0 && shed["no_replica"] != 0 || shed["queue_full"] != 2 {
				t.Errorf("counted as %v", shed)
			}
			if x := p.Explain(&waits.r); x.Refused != 0 {
				t.Errorf("explained as %+v", x)
			}
			if a := p.Autoscale(); a.Recommended != 1 || a.Demand == 0 {
				t.Errorf("%+v", a)
			}
		})
	}
}

// Requests are held only if the proxy reported lately that no replica is up. A
// replica that failed a moment ago is up. A process that ends, or a reload that
// turns the holding off, decides all.
func TestWithoutReplicaFailsOpen(t *testing.T) {
	down := func(p *Pool) { p.Discovered([]ReplicaState{{Name: "r0", Weight: 1}}) }
	p, clock := newTestPool(LeastWork{}, 0, holdingAlways(), func(c *PoolConfig) { c.Discover = true })
	if c := submit(p); c.held || c.d.Status != 0 {
		t.Errorf("the proxy has reported no servers yet: %+v", c.d)
	}
	p.Discovered(nil)
	waits := submit(p)
	if !waits.held {
		t.Errorf("the proxy has no servers: %+v", waits.d)
	}
	clock.at(blindAfter+20*time.Millisecond, p, func() {})
	if !waits.answered() || waits.d.Server != "" || waits.d.Status != 0 {
		t.Errorf("the proxy has fallen silent: %+v", waits.d)
	}

	p, _ = newTestPool(LeastWork{}, 0, holdingAlways(), func(c *PoolConfig) { c.Unfound = true })
	if c := submit(p); c.held || c.d.Status != 0 {
		t.Errorf("no replica is found yet: %+v", c.d)
	}

	p, clock = newTestPool(LeastWork{}, 1, holdingAlways())
	down(p)
	waits = submit(p)
	clock.at(blindAfter+20*time.Millisecond, p, func() {})
	if !waits.held || !waits.answered() {
		t.Errorf("the proxy has fallen silent: %+v", waits.d)
	}
	p.Checked("r0", false)
	if c := submit(p); !c.held {
		t.Errorf("down by the agent's own checks: %+v", c.d)
	}

	p, _ = newTestPool(LeastWork{}, 1, holdingAlways())
	for range 9 {
		c := submit(p)
		if c.d.Server != "r0" {
			t.Fatalf("a replica that fails: %+v", c.d)
		}
		p.Finished(Outcome{ID: c.r.ID, Server: []byte("r0"), End: Refused})
	}

	p, _ = newTestPool(LeastWork{}, 1, holdingAlways())
	down(p)
	waits = submit(p)
	c := p.config
	c.Admission = &Admission{Hold: true, Bands: c.Admission.Bands}
	p.configure(c)
	if !waits.answered() || waits.d.Why != "all_down" {
		t.Errorf("after a reload that turns it off: %+v", waits.d)
	}
	c.Admission = &Admission{Hold: true, HoldWithoutReplica: true, Bands: c.Admission.Bands}
	p.configure(c)
	waits = submit(p)
	p.mu.Lock()
	p.admission.drain(0)
	p.mu.Unlock()
	if !waits.held || !waits.answered() {
		t.Errorf("the process ends: %+v", waits.d)
	}
}
