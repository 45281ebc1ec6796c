package decider

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever happens to a pool in whatever order, the replicas' counts are those of the
// reservations, replicas that may not be chosen are never chosen, and in the end nothing is
// in flight.
func TestPoolAccounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policies := []Policy{&RoundRobin{}, Random{}, PowerOfTwo{}, LeastRequests{}}
		policy := rapid.SampledFrom(policies).Draw(t, "policy")
		p, clock := newTestPool(policy, rapid.IntRange(1, 5).Draw(t, "replicas"), func(c *PoolConfig) {
			c.Limit = rapid.IntRange(0, 3).Draw(t, "limit")
			c.Lease = time.Minute
			c.SlowStart = rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "slow start")
			c.Discover = true
		})
		var live []ID
		anyID := func() ID {
			if len(live) == 0 || rapid.IntRange(0, 9).Draw(t, "stranger") == 0 {
				return newID()
			}
			return rapid.SampledFrom(live).Draw(t, "id")
		}
		server := func() []byte {
			return []byte(rapid.SampledFrom([]string{"r0", "r1", "r2", "nobody", ""}).Draw(t, "server"))
		}
		check := func() {
			inFlight, waiting, tokens := map[*Replica]int{}, map[*Replica]int{}, map[*Replica]int{}
			for _, i := range p.account.byID {
				v := &p.account.slots[i]
				inFlight[v.replica]++
				tokens[v.replica] += v.tokens
				if !v.started {
					waiting[v.replica]++
				}
			}
			for _, r := range p.replicas {
				if r.inFlight != inFlight[r] || r.waiting != waiting[r] || r.tokens != tokens[r] {
					t.Fatalf("%s says %d in flight, %d waiting, %d tokens; its reservations say %d, %d, %d",
						r.name, r.inFlight, r.waiting, r.tokens, inFlight[r], waiting[r], tokens[r])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { check() },
			"decide": func(t *rapid.T) {
				d, id := decide(p, inSession(rapid.IntRange(0, 3).Draw(t, "session")), func(r *Request) {
					r.Exclude = rapid.SampledFrom([]string{"", "r0"}).Draw(t, "exclude")
				})
				if d.Server == "" {
					return
				}
				live = append(live, id)
				for k, name := range []string{d.Server, d.Fallbacks[0], d.Fallbacks[1]} {
					if name == "" {
						continue
					}
					r := p.byName[name]
					held := r.inFlight
					if k == 0 {
						held-- // this very request
					}
					if !r.open() || r.limit > 0 && held >= r.limit {
						t.Fatalf("rank %d is %s: down %v, draining %v, %d of %d in flight", k, name, r.down, r.draining, held, r.limit)
					}
					for _, other := range []string{d.Server, d.Fallbacks[0], d.Fallbacks[1]}[:k] {
						if other == name {
							t.Fatalf("%s is there twice: %+v", name, d)
						}
					}
				}
			},
			"again": func(t *rapid.T) {
				r, d := Request{ID: anyID(), Pool: p}, Decision{}
				p.Decide(&r, &d)
				if d.Server != "" {
					live = append(live, r.ID)
				}
			},
			"connected": func(t *rapid.T) { p.Connected(anyID(), server()) },
			"first":     func(t *rapid.T) { p.FirstToken(anyID(), server()) },
			"finished": func(t *rapid.T) {
				p.Finished(Outcome{
					ID: anyID(), Server: server(), End: End(rapid.IntRange(0, int(Ends)-1).Draw(t, "end")),
					Redispatched: rapid.Bool().Draw(t, "redispatched"), TTFT: time.Duration(rapid.IntRange(0, 1).Draw(t, "ttft")),
				})
			},
			"discovered": func(t *rapid.T) {
				var s []ReplicaState
				for i := range rapid.IntRange(0, 5).Draw(t, "n") {
					s = append(s, ReplicaState{
						Name: fmt.Sprintf("r%d", i), Up: rapid.Bool().Draw(t, "up"),
						Draining: rapid.Bool().Draw(t, "draining"), Weight: rapid.IntRange(0, 3).Draw(t, "weight"),
					})
				}
				p.Discovered(s)
			},
			"time": func(t *rapid.T) {
				clock.now += time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second
				p.sweep()
			},
		})
		expireAll(t, p, clock, check)
		for _, r := range p.replicas {
			if r.inFlight != 0 || r.waiting != 0 || r.tokens != 0 {
				t.Fatalf("%s ends with %d in flight, %d waiting, %d tokens", r.name, r.inFlight, r.waiting, r.tokens)
			}
		}
	})
}

// expireAll lets all leases pass: no reservation may be left.
func expireAll(t *rapid.T, p *Pool, clock *testClock, check func()) {
	clock.now += 2 * time.Minute
	p.sweep()
	check()
	if n := p.account.len(); n != 0 {
		t.Fatalf("%d reservations outlive their leases", n)
	}
}

func TestOutcomeMovesToWhoServed(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 3)
	d, id := decide(p)
	other := "r0"
	if d.Server == other {
		other = "r1"
	}
	p.FirstToken(id, []byte(other))
	if p.byName[other].inFlight != 1 || p.byName[d.Server].inFlight != 0 || p.byName[other].waiting != 0 {
		t.Error("the reservation stayed with the replica that did not serve")
	}
	p.Finished(Outcome{ID: id, Server: []byte(other), Redispatched: true})
	s := p.Status()
	if s.Stats.Mismatches != 1 || s.Reservations != 0 {
		t.Errorf("mismatches %d, reservations %d", s.Stats.Mismatches, s.Reservations)
	}
	if p.byName[d.Server].failures != 1 || p.byName[other].served != 1 {
		t.Error("the replica that refused the connection was not charged")
	}
}

func TestClientGoneBeforeTheDecision(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 2)
	id := newID()
	p.Finished(Outcome{ID: id, End: ClientGone})
	if d, _ := decide(p, func(r *Request) { r.ID = id }); d.Server != "" || d.Why != "client_gone" {
		t.Errorf("a request whose client has left was placed: %+v", d)
	}
	if n := p.Status().Reservations; n != 0 {
		t.Errorf("%d reservations", n)
	}
}

// HAProxy reports no end for some requests of a dead replica.
func TestDownAndIdleLosesItsReservations(t *testing.T) {
	p, clock := newTestPool(&RoundRobin{}, 2)
	tell := func(up, idle bool) {
		p.Discovered([]ReplicaState{{Name: "r0", Up: up, Idle: idle, Weight: 1, Origin: 7}, {Name: "r1", Up: true, Idle: true, Weight: 1, Origin: 7}})
	}
	held := func(want int) {
		t.Helper()
		if n := p.byName["r0"].inFlight; n != want {
			t.Errorf("%d in flight at r0, want %d", n, want)
		}
		if n := p.byName["r1"].inFlight; n != 3 {
			t.Errorf("%d in flight at r1, want 3", n)
		}
	}
	tally(p, 6, false, askedBy(7))
	clock.now += time.Minute
	tell(true, true)
	held(3) // up: the proxy may serve through others
	tell(false, false)
	held(3)
	p.byName["r0"].cacheSeen = 1 << 20
	tell(false, true)
	held(0)
	if n := p.byName["r0"].cacheSeen; n != 0 {
		t.Errorf("%d tokens seen in the cache of requests that had ended", n)
	}
	if s := p.Status().Stats; s.Expired != 3 {
		t.Errorf("%d expired, want 3", s.Expired)
	}
	tell(true, true)
	for p.byName["r0"].inFlight == 0 {
		if d, id := decide(p, askedBy(7)); d.Server != "r0" {
			p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
		}
	}
	tell(false, true)
	held(1) // the feed may yet tell
}

func TestAllFailedIsStillServed(t *testing.T) {
	p, _ := newTestPool(PowerOfTwo{}, 3)
	for _, r := range p.replicas {
		ends(p, r.name, Outcome{End: Refused})
	}
	if d, _ := decide(p); d.Server == "" {
		t.Error("no replica was chosen though all are merely ejected")
	}
}

func TestNoReplicaLeavesItToTheProxy(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 2, func(c *PoolConfig) { c.Limit = 1 })
	tally(p, 2, false)
	if d, _ := decide(p); d.Server != "" || d.Why != "all_full" || d.Status != 0 {
		t.Errorf("full: %+v", d)
	}
	p.Discovered([]ReplicaState{{Name: "r0", Up: false, Weight: 1}, {Name: "r1", Up: true, Draining: true, Weight: 1}})
	if d, _ := decide(p); d.Server != "" || d.Why != "all_down" {
		t.Errorf("down: %+v", d)
	}
}

func TestSlowStart(t *testing.T) {
	p, clock := newTestPool(Random{}, 2, func(c *PoolConfig) { c.SlowStart = 100 * time.Second })
	near(t, "both up from the start", tally(p, draws, true)["r0"], 1.0/2)
	state := []ReplicaState{{Name: "r0", Weight: 1}, {Name: "r1", Up: true, Weight: 1}}
	p.Discovered(state)
	state[0].Up = true
	p.Discovered(state)
	near(t, "at once", tally(p, draws, true)["r0"], slowStartFloor/2)
	clock.now += 50 * time.Second
	near(t, "half way", tally(p, draws, true)["r0"], 0.5/2)
	clock.now += 50 * time.Second
	near(t, "after it", tally(p, draws, true)["r0"], 1.0/2)
}

func TestLeaseIsRenewedByNews(t *testing.T) {
	p, clock := newTestPool(LeastRequests{}, 1, func(c *PoolConfig) { c.Lease = time.Minute })
	_, quiet := decide(p)
	_, streaming := decide(p)
	clock.now += 50 * time.Second
	p.FirstToken(streaming, []byte("r0"))
	clock.now += 10 * time.Second
	p.sweep()
	if p.find(quiet) != nil || p.find(streaming) == nil {
		t.Error("want the quiet one expired and the other one alive")
	}
	if s := p.Status().Stats; s.Expired != 1 {
		t.Errorf("expired %d", s.Expired)
	}
}

func TestDiscoveredFollowsTheProxy(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 0, func(c *PoolConfig) { c.Discover = true })
	if d, _ := decide(p); d.Why != "no_replicas" {
		t.Errorf("an empty pool: %+v", d)
	}
	p.Discovered([]ReplicaState{{Name: "a", Address: "127.0.0.1:1", Up: true, Weight: 1}})
	d, id := decide(p)
	if d.Server != "a" {
		t.Fatalf("decision %+v", d)
	}
	p.Discovered([]ReplicaState{{Name: "b", Up: true, Weight: 1}})
	if d, _ := decide(p); d.Server != "b" {
		t.Errorf("decision %+v after a was deleted", d)
	}
	p.Finished(Outcome{ID: id, Server: []byte("a")})
	p.Discovered([]ReplicaState{{Name: "b", Up: true, Weight: 1}, {Name: "a", Up: true, Weight: 1}})
	if got := p.byName["a"].inFlight; got != 0 {
		t.Errorf("a came back with %d in flight", got)
	}
}

func TestReloadKeepsReservations(t *testing.T) {
	clock := &testClock{}
	d := New(clock.tell, seeds())
	config := func(n int, policy Policy) Config {
		return Config{Pools: []PoolConfig{{Name: "llama", Policy: policy, PolicyKey: fmt.Sprintf("%T", policy), Replicas: replicas(n)}}}
	}
	first := LeastRequests{}
	d.Apply(config(3, first))
	p := d.Pools()[0]
	tally(p, 30, false)
	d.Apply(config(4, &RoundRobin{}))
	if d.Pools()[0] != p {
		t.Fatal("the pool was made anew")
	}
	s := p.Status()
	if s.Reservations != 30 || s.Replicas[0].InFlight != 10 || s.Replicas[3].InFlight != 0 {
		t.Errorf("after the reload: %+v", s)
	}
	rr := p.policy
	d.Apply(config(4, &RoundRobin{}))
	if p.policy != rr {
		t.Error("an unchanged policy was replaced and forgot what it learned")
	}
	d.Apply(Config{})
	if n := p.Status().Reservations; n != 0 || len(d.Pools()) != 0 {
		t.Errorf("the pool is gone with %d reservations", n)
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	for _, policy := range []Policy{&RoundRobin{}, Random{}, PowerOfTwo{}, LeastRequests{}} {
		p, _ := newTestPool(policy, 64)
		r := Request{Pool: p, Input: 1000, HasSession: true}
		var d Decision
		n, r5 := uint64(0), []byte("r5")
		step := func() {
			n++
			r.ID = ID{byte(n), byte(n >> 8), byte(n >> 16)}
			r.Session = scramble(n)
			p.Decide(&r, &d)
			p.FirstToken(r.ID, r5)
			p.Finished(Outcome{ID: r.ID, Server: r5})
		}
		for range 200 {
			step()
		}
		if a := testing.AllocsPerRun(1000, step); a != 0 {
			t.Errorf("%T: %v allocations a request", policy, a)
		}
	}
}

// TestPassedOver: decisions that the proxy gives to another server without trying theirs are
// counted until it follows one, and enough of them eject the replica. It then gets one
// request at a time, until one shows that it is used. A server that refused the connection
// was tried.
func TestPassedOver(t *testing.T) {
	p, clock := newTestPool(LeastRequests{}, 3)
	end := func(server string, redispatched bool) {
		t.Helper()
		for range 100 {
			d, id := decide(p)
			if d.Server == "r0" {
				p.Finished(Outcome{ID: id, Server: []byte(server), End: Served, Redispatched: redispatched})
				return
			}
			p.Finished(Outcome{ID: id, Server: []byte(d.Server), End: Served}) // the others serve their own
		}
		t.Fatal("r0 is not chosen")
	}
	is := func(passed uint64, state string, reported bool) {
		t.Helper()
		if s := p.Status().Replicas[0]; s.PassedOver != passed || s.State != state || s.Passed() != reported {
			t.Errorf("%d decisions passed over, %s, reported %v; want %d, %s, %v", s.PassedOver, s.State, s.Passed(), passed, state, reported)
		}
	}
	for range passedEnough - 1 {
		end("r1", false)
	}
	is(passedEnough-1, "up", false)
	p.Finished(Outcome{ID: newID(), Server: []byte("r1"), End: Served})
	is(passedEnough-1, "up", false) // without a decision of ours
	end("r0", false)
	is(0, "up", false)
	for range passedEnough {
		end("r1", false)
	}
	is(passedEnough, "ejected", true)
	clock.now += ejectFirst
	end("r1", false)
	is(passedEnough+1, "ejected", true)
	if clock.now += ejectFirst; p.Status().Replicas[0].State != "ejected" {
		t.Error("the second ejection lasts no longer than the first")
	}
	clock.now += ejectFirst
	end("r0", false)
	is(0, "up", false)
	end("r1", true)
	is(0, "ejected", false)
}

// TestPassedOverTogether: a proxy that follows nobody, as one with rules of its own, does not
// have more than half of a pool ejected.
func TestPassedOverTogether(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 4)
	for range 100 * passedEnough {
		_, id := decide(p)
		p.Finished(Outcome{ID: id, Server: []byte("r3"), End: Served})
	}
	ejected, reported := 0, 0
	for _, s := range p.Status().Replicas {
		if s.State == "ejected" {
			ejected++
		}
		if s.Passed() {
			reported++
		}
	}
	if ejected != 2 || reported != 3 {
		t.Errorf("%d ejected and %d reported of the three that are not used", ejected, reported)
	}
}
