package decider

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// prefixed is LeastRequests for prompts that are compared.
type prefixed struct{ LeastRequests }

func (prefixed) UsesPrefix() bool { return true }

// newLegsPool has prefill and decode replicas: p0, p1 …, d0, d1 …
func newLegsPool(prefill, decode int, change ...func(*PoolConfig)) (*Pool, *testClock) {
	return newTestPool(prefixed{}, 0, append([]func(*PoolConfig){func(c *PoolConfig) {
		c.PrefillPolicy = prefixed{}
		for i := range prefill {
			c.Replicas = append(c.Replicas, ReplicaConfig{Name: fmt.Sprintf("p%d", i), Address: fmt.Sprintf("10.0.0.%d:1", i), Role: RolePrefill})
		}
		for i := range decode {
			c.Replicas = append(c.Replicas, ReplicaConfig{Name: fmt.Sprintf("d%d", i), Address: fmt.Sprintf("10.0.1.%d:1", i), Role: RoleDecode})
		}
	}}, change...)...)
}

func long(r *Request) { r.Input, r.Stream = 8000, true }

func TestLegIsReservedUntilTheFirstToken(t *testing.T) {
	p, clock := newLegsPool(2, 2, func(c *PoolConfig) { c.LegTokens = 1 })
	d, id := decide(p, long)
	if d.Server[0] != 'd' || d.Prefill == "" {
		t.Fatalf("decision %+v", d)
	}
	for _, f := range d.Fallbacks {
		if f != "" && f[0] != 'd' {
			t.Errorf("fallback %s only computes prompts", f)
		}
	}
	leg := p.find(legOf(id))
	if leg == nil || leg.replica.address != d.Prefill || leg.uncached != 8000 || leg.replica.prefill.n != 1 {
		t.Fatalf("leg %+v", leg)
	}
	dr := p.byName[d.Server]
	if dr.prefill.n != 0 || dr.remote != 1 || dr.inFlight != 1 || dr.waiting != 1 {
		t.Errorf("at %s: %d to compute, %d elsewhere, %d in flight, %d waiting", dr.name, dr.prefill.n, dr.remote, dr.inFlight, dr.waiting)
	}
	clock.now += time.Second
	p.FirstToken(id, []byte(d.Server))
	if p.find(legOf(id)) != nil || dr.remote != 0 || dr.inFlight != 1 {
		t.Errorf("after the first token: leg %v, %d elsewhere, %d in flight", p.find(legOf(id)), dr.remote, dr.inFlight)
	}
	p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
	if s := p.Status(); s.Reservations != 0 || s.Legs.Legs != 1 || s.Legs.Tokens != 8000 || s.Replicas[0].Role != "prefill" {
		t.Errorf("in the end: %+v", s)
	}
}

// Its own engine's count ends a leg, and then the time to the first token is the
// transfer's.
func TestLegEndsWhenItIsComputed(t *testing.T) {
	p, clock := newLegsPool(1, 1, func(c *PoolConfig) { c.LegTokens = 1 })
	p.Engine("p0").FirstTokens(0)
	d, id := decide(p, long)
	clock.now += time.Second
	p.Engine("p0").FirstTokens(1)
	if p.byName["p0"].inFlight != 0 || p.byName["d0"].remote != 1 {
		t.Fatal("the leg has not ended")
	}
	clock.now += 200 * time.Millisecond
	p.FirstToken(id, []byte(d.Server))
	if got := p.legs.transfers.expected(8000); got < 0.19 || got > 0.21 {
		t.Errorf("a transfer of 8000 tokens is expected to take %v s, want 0.2", got)
	}
	if got := p.Status().Replicas[0].Served; got != 1 {
		t.Errorf("p0 served %d", got)
	}
}

// A leg is made where it takes less time in all.
func TestLegOrNot(t *testing.T) {
	p, clock := newLegsPool(1, 1)
	p.legs.transfers.add(100_000, time.Second)
	if d, id := decide(p, long); d.Prefill != "" {
		t.Errorf("a leg and a transfer in place of an idle replica: %+v", d)
	} else {
		p.FirstToken(id, []byte("d0")) // and it goes on
	}
	d, busy := decide(p, long)
	if d.Prefill == "" {
		t.Error("no leg, though an answer would be delayed")
	}
	local := p.legs.counts.Local
	for range 40 { // the prefill replica falls behind
		d, _ = decide(p, long)
	}
	if n := p.legs.counts.Local - local; n < 10 || n > 30 {
		t.Errorf("with %.0f tokens before p0, %d of 40 prompts were left to d0", p.load.backlog(p.byName["p0"], clock.now), n)
	}
	x := p.Explain(&Request{Pool: p, Input: 8000, Output: -1})
	if x.Legs == nil || (x.Legs.Prefill == "p0") != (x.Legs.There+x.Legs.Moved <= x.Legs.Here) || x.Legs.Here < 10 || x.Candidates[0].Role != "prefill" || x.Server != "d0" {
		t.Errorf("explained: %+v %+v", x, x.Legs)
	}
	if d, _ := decide(p, func(r *Request) { r.Input, r.OneToken = 8000, true }); d.Prefill != "" {
		t.Error("a leg for an embedding")
	}
	p.Finished(Outcome{ID: busy, Server: []byte("d0")})
}

func TestLegsByTokens(t *testing.T) {
	p, _ := newLegsPool(1, 2, func(c *PoolConfig) { c.LegTokens = 500 })
	p.legs.transfers.add(100, time.Hour)
	if d, _ := decide(p, long); d.Prefill == "" {
		t.Error("no leg for a long prompt")
	}
	if d, _ := decide(p); d.Prefill != "" {
		t.Error("a leg for a short prompt")
	}
}

// The sidecar answers with the error of a gateway when the prefill replica is gone: that
// is left out, not the decode replica.
func TestFailureOfALeg(t *testing.T) {
	p, clock := newLegsPool(1, 2, func(c *PoolConfig) { c.LegTokens = 1 })
	d, id := decide(p, long)
	p.Finished(Outcome{ID: id, Server: []byte(d.Server), End: Failed, Status: 502})
	if r := p.byName[d.Server]; r.failed != 0 || p.byName["p0"].failed != 1 {
		t.Errorf("failures: %d of %s, %d of p0", r.failed, d.Server, p.byName["p0"].failed)
	}
	if d, _ := decide(p, long); d.Prefill != "" || d.Server == "" {
		t.Errorf("right after that: %+v", d)
	}
	clock.now += ejectFirst
	d, id = decide(p, long)
	if d.Prefill == "" {
		t.Fatal("it is not tried again")
	}
	if other, _ := decide(p, long); other.Prefill != "" {
		t.Error("it is tried by more than one request")
	}
	p.FirstToken(id, []byte(d.Server))
	if p.byName["p0"].suspect() {
		t.Error("it has worked, and is suspect yet")
	}
	// Once the prompt is computed, the decode replica fails by itself.
	p.Engine("p0").FirstTokens(0)
	d, id = decide(p, long)
	p.Engine("p0").FirstTokens(1)
	p.Finished(Outcome{ID: id, Server: []byte(d.Server), End: Failed, Status: 502})
	if r := p.byName[d.Server]; r.failed != 1 {
		t.Errorf("%s failed %d", d.Server, r.failed)
	}
	p.Checked("p0", false)
	if d, _ := decide(p, long); d.Prefill != "" || d.Server == "" {
		t.Errorf("with p0 down: %+v", d)
	}
}

// A request moved to a replica without a sidecar is computed there.
func TestLegOfARequestThatMoved(t *testing.T) {
	p, _ := newLegsPool(1, 1, func(c *PoolConfig) {
		c.LegTokens = 1
		c.Replicas = append(c.Replicas, ReplicaConfig{Name: "b0"})
	})
	d, id := decide(p, long)
	for d.Server != "d0" {
		d, id = decide(p, long)
	}
	p.Connected(id, []byte("b0"))
	if p.find(legOf(id)) != nil || p.byName["d0"].remote != 0 || p.byName["b0"].remote != 0 || p.byName["b0"].prefill.uncached == 0 {
		t.Error("the leg has not ended")
	}
}

// An engine knows nothing of a request whose prompt is computed elsewhere: it is not
// lost.
func TestLegsAreNotTakenForLost(t *testing.T) {
	p, clock := newLegsPool(1, 1, func(c *PoolConfig) { c.LegTokens = 1 })
	_, id := decide(p, long)
	for range 10 {
		clock.now += time.Second
		p.Engine("d0").Signals(Signals{})
		p.Engine("p0").Signals(Signals{Running: 1})
	}
	if p.find(id) == nil || p.find(legOf(id)) == nil {
		t.Error("it was taken for lost")
	}
	for range 10 { // a sidecar that ignores the header
		clock.now += time.Second
		p.Engine("p0").Signals(Signals{})
	}
	if p.find(id) == nil || p.find(legOf(id)) != nil {
		t.Error("a leg that is nowhere was not ended")
	}
}

// Whatever happens in whatever order, counts are those of the reservations, no leg
// outlives its request, and in the end nothing is in flight.
func TestLegsLeakNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, clock := newLegsPool(rapid.IntRange(1, 2).Draw(t, "prefill"), rapid.IntRange(1, 3).Draw(t, "decode"), func(c *PoolConfig) {
			c.LegTokens, c.Lease = rapid.IntRange(0, 1).Draw(t, "tokens"), time.Minute
			c.Limit = rapid.IntRange(0, 3).Draw(t, "limit")
			c.Replicas = append(c.Replicas, ReplicaConfig{Name: "b0"})
		})
		var live []ID
		anyID := func() ID {
			if len(live) == 0 || rapid.IntRange(0, 9).Draw(t, "stranger") == 0 {
				return newID()
			}
			id := rapid.SampledFrom(live).Draw(t, "id")
			if rapid.IntRange(0, 9).Draw(t, "leg") == 0 {
				return legOf(id)
			}
			return id
		}
		name := func() string {
			return rapid.SampledFrom([]string{"p0", "p1", "d0", "d1", "b0", "nobody", ""}).Draw(t, "server")
		}
		check := func() {
			inFlight, waiting, remote, moving := map[*Replica]int{}, map[*Replica]int{}, map[*Replica]int{}, map[*Replica]int{}
			for _, i := range p.account.byID {
				v := &p.account.slots[i]
				inFlight[v.replica]++
				if !v.started {
					waiting[v.replica]++
				}
				if v.remote && !v.started {
					remote[v.replica]++
					moving[v.via] += v.missing
				}
				if v.leg && p.find(legOf(v.id)) == nil {
					t.Fatalf("a leg on %s without its request", v.replica.name)
				}
			}
			for _, r := range p.replicas {
				if r.inFlight != inFlight[r] || r.waiting != waiting[r] || r.remote != remote[r] || r.moving != moving[r] || r.firstTokens.remote < 0 || r.firstTokens.remote > r.remote {
					t.Fatalf("%s says %d in flight, %d waiting, %d elsewhere (%d counted); its reservations say %d, %d, %d",
						r.name, r.inFlight, r.waiting, r.remote, r.firstTokens.remote, inFlight[r], waiting[r], remote[r])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { check() },
			"decide": func(t *rapid.T) {
				d, id := decide(p, long, askedBy(7), func(r *Request) { r.Stream = rapid.Bool().Draw(t, "stream") })
				if d.Server != "" {
					live = append(live, id)
				}
				if d.Server != "" && d.Server[0] == 'p' || d.Prefill != "" && d.Server[0] != 'd' {
					t.Fatalf("decision %+v", d)
				}
			},
			"again": func(t *rapid.T) {
				r, d := Request{ID: anyID(), Pool: p, Input: 4000}, Decision{}
				p.Decide(&r, &d)
			},
			"connected": func(t *rapid.T) { p.Connected(anyID(), []byte(name())) },
			"first":     func(t *rapid.T) { p.FirstToken(anyID(), []byte(name())) },
			"counted":   func(t *rapid.T) { p.Engine(name()).FirstTokens(rapid.IntRange(0, 3).Draw(t, "n")) },
			"failed":    func(t *rapid.T) { p.Failed(anyID(), name(), Died) },
			"signals": func(t *rapid.T) {
				p.Engine(name()).Signals(Signals{Running: rapid.IntRange(0, 3).Draw(t, "running")})
			},
			"finished": func(t *rapid.T) {
				p.Finished(Outcome{
					ID: anyID(), Server: []byte(name()), End: End(rapid.IntRange(0, int(Ends)-1).Draw(t, "end")),
					Status: rapid.SampledFrom([]int{0, 200, 400, 500, 502}).Draw(t, "status"),
					TTFT:   time.Duration(rapid.IntRange(0, 1).Draw(t, "ttft")),
				})
			},
			"gone": func(t *rapid.T) {
				d := New(clock.tell, seeds())
				d.pools.Store(&[]*Pool{p})
				d.Gone(7)
			},
			"snapshot": func(t *rapid.T) { p.Status(); p.Explain(&Request{Pool: p, Input: 4000, Output: -1}) },
			"time": func(t *rapid.T) {
				clock.now += time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond
				p.sweep()
			},
		})
		expireAll(t, p, clock, check)
	})
}

// Another agent knows from the reservations alone who computes a prompt.
func TestLegsAreShared(t *testing.T) {
	a, clock := newLegsPool(1, 1, func(c *PoolConfig) { c.LegTokens = 1 })
	b, _ := newLegsPool(1, 1)
	journal := &eventList{}
	a.report.journal = journal
	d, id := decide(a, long)
	apply := func() {
		for _, e := range journal.list {
			b.peers.apply("a", &e)
		}
		journal.list = nil
	}
	apply()
	if p0, d0 := b.byName["p0"], b.byName["d0"]; p0.prefill.uncached != 8000 || d0.prefill.uncached != 0 || d0.inFlight != 1 || d0.remote != 1 {
		t.Errorf("the other agent has %d tokens to compute on p0 and %d on d0", p0.prefill.uncached, d0.prefill.uncached)
	}
	clock.now += time.Second
	a.FirstToken(id, []byte(d.Server))
	apply()
	if p0, d0 := b.byName["p0"], b.byName["d0"]; p0.inFlight != 0 || d0.inFlight != 1 || d0.remote != 0 {
		t.Errorf("after the first token the other agent has %d requests on p0, %d on d0", p0.inFlight, d0.inFlight)
	}
	a.Finished(Outcome{ID: id, Server: []byte(d.Server)})
	apply()
	if n := b.account.len(); n != 0 {
		t.Errorf("the other agent keeps %d reservations", n)
	}
}

type eventList struct{ list []Event }

func (t *eventList) Add(e *Event) { t.list = append(t.list, *e) }

func TestLegsDoNotAllocate(t *testing.T) {
	p, _ := newLegsPool(4, 16, func(c *PoolConfig) { c.LegTokens = 1 })
	r := Request{Pool: p, Input: 8000, Stream: true}
	names := map[string][]byte{}
	for _, c := range p.replicas {
		names[c.name] = []byte(c.name)
	}
	var d Decision
	n := uint64(0)
	step := func() {
		n++
		r.ID = ID{byte(n), byte(n >> 8), byte(n >> 16)}
		p.Decide(&r, &d)
		if d.Prefill == "" {
			t.Fatal("no leg")
		}
		p.FirstToken(r.ID, names[d.Server])
		p.Finished(Outcome{ID: r.ID, Server: names[d.Server]})
	}
	for range 200 {
		step()
	}
	if a := testing.AllocsPerRun(1000, step); a != 0 {
		t.Errorf("%v allocations a request", a)
	}
}
