//go:build ignore

package policy

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func withFilters(f Filters) func(*PoolConfig) {
	return func(c *PoolConfig) { c.Filters = f }
}

// places puts r0 on the agent's node, r1 and r2 in its zone, the rest elsewhere.
func places(c *PoolConfig) {
	c.Filters.Locality, c.Filters.Node, c.Filters.Zone = true, "n1", "a"
	c.Replicas[0].Node = "n1"
	c.Replicas[1].Zone, c.Replicas[2].Zone = "a", "a"
}

func TestLocalityPrefersNodeThenZone(t *testing.T) {
	p, _ := newTestPool(Random{}, 5, withFilters(Filters{Spill: 4}), places)
	if d, _ := decide(p); d.Server != "r0" || d.Why != "test+locality" || d.Fallbacks[1] == "" {
		t.Errorf("got %+v, want the agent's own node and fallbacks elsewhere", d)
	}
	p.replicas[0].down = true
	p.refresh()
	for s := range tally(p, 200, true) {
		if s != "r1" && s != "r2" {
			t.Errorf("went to %s, not to the zone", s)
		}
	}
	p.replicas[1].down, p.replicas[2].down = true, true
	p.refresh()
	counts := tally(p, 200, true)
	if d, _ := decide(p); len(counts) != 2 || d.Why != "test" {
		t.Errorf("with nothing near: %v, %s", counts, d.Why)
	}
}

func TestLocalitySpills(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 5, withFilters(Filters{Spill: 4}), places)
	p.replicas[0].inFlight = 4
	if d, _ := decide(p); d.Server != "r0" {
		t.Errorf("left its node for %s at the bound", d.Server)
	} // now 5
	if d, _ := decide(p); d.Server != "r1" && d.Server != "r2" {
		t.Errorf("went to %s, want the zone when the node is loaded", d.Server)
	}
	p.replicas[1].inFlight, p.replicas[2].inFlight = 6, 5
	if d, _ := decide(p); d.Server != "r3" && d.Server != "r4" {
		t.Errorf("went to %s, want elsewhere when all near are loaded", d.Server)
	}
}

func TestLoRARanks(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 4, withFilters(Filters{LoRA: true, Spill: 2}))
	r := p.replicas
	r[0].adapters.reserve("other")
	r[1].adapters.reserve("other")
	first, id := decide(p, withLoRA("sql"))
	if first.Server != "r2" && first.Server != "r3" {
		t.Errorf("a new adapter went to %s, which has others", first.Server)
	}
	if first.Why != "test+lora_affinity" {
		t.Errorf("why %s", first.Why)
	}
	for range 2 {
		if d, _ := decide(p, withLoRA("sql")); d.Server != first.Server {
			t.Errorf("went to %s, but %s has it", d.Server, first.Server)
		}
	}
	// Three in flight against none elsewhere: a second replica gets the adapter.
	second, _ := decide(p, withLoRA("sql"))
	if second.Server == first.Server || second.Server == "r0" || second.Server == "r1" {
		t.Errorf("a hot adapter went on to %s", second.Server)
	}
	p.FirstToken(id, []byte(first.Server))
	p.Finished(Outcome{ID: id, Server: []byte(first.Server)})
	if !p.byName[first.Server].HasLoRA("sql") || !p.byName[second.Server].HasLoRA("sql") || r[0].HasLoRA("sql") {
		t.Error("the replicas' adapters are not those they were asked for")
	}
	if d, _ := decide(p); d.Why != "test" {
		t.Errorf("a request without an adapter was narrowed: %s", d.Why)
	}
}

func TestStickySessions(t *testing.T) {
	p, _ := newTestPool(Random{}, 8, withFilters(Filters{Sticky: true, Spill: 3}))
	for n := range 50 {
		first, id := decide(p, inSession(n))
		p.Finished(Outcome{ID: id, Server: []byte(first.Server)})
		for range 3 {
			d, id := decide(p, inSession(n))
			if d.Server != first.Server || d.Why != "test+sticky_sessions" || d.Fallbacks[1] == "" {
				t.Fatalf("session %d moved from %s: %+v", n, first.Server, d)
			}
			p.Finished(Outcome{ID: id, Server: []byte(first.Server)})
		}
	}
	// The session follows the replica that really served.
	d, id := decide(p, inSession(1000))
	served := "r0"
	if d.Server == served {
		served = "r1"
	}
	p.Finished(Outcome{ID: id, Server: []byte(served)})
	if d, _ := decide(p, inSession(1000)); d.Server != served {
		t.Errorf("went to %s, but %s served the session last", d.Server, served)
	}
	// It leaves a replica that is loaded, or down, and stays where it went.
	p.byName[served].inFlight += 3
	d, _ = decide(p, inSession(1000))
	if d.Server == served || d.Why != "test" {
		t.Errorf("stayed on the loaded %s: %s", served, d.Why)
	}
	p.byName[d.Server].down = true
	p.refresh()
	if next, _ := decide(p, inSession(1000)); next.Server == d.Server {
		t.Errorf("went to %s, which is down", d.Server)
	}
}

func TestFiltersCombine(t *testing.T) {
	p, _ := newTestPool(LeastRequests{}, 5, withFilters(Filters{Sticky: true, LoRA: true, Spill: 9}), places)
	for _, i := range []int{1, 3} {
		p.replicas[i].adapters.reserve("sql")
	}
	d, _ := decide(p, withLoRA("sql"), inSession(1))
	if d.Server != "r1" || d.Why != "test+lora_affinity+locality" || d.Fallbacks[1] == "" || slices.Contains(d.Fallbacks[:], "r1") {
		t.Errorf("got %+v, want the replica in the zone that has the adapter", d)
	}
	x := p.Explain(&Request{Pool: p, LoRA: "sql"})
	want := []Counter{{`narrowed_total{filter="sticky_sessions"}`, 0}, {`narrowed_total{filter="lora_affinity"}`, 1}, {`narrowed_total{filter="locality"}`, 1}}
	if counts := p.Status().PolicyStats; !slices.Equal(counts, want) {
		t.Errorf("counted %v, want %v", counts, want)
	}
	got := map[string]string{}
	for _, c := range x.Candidates {
		got[c.Replica] = c.Excluded
	}
	if x.Why != "test+lora_affinity+locality" || got["r0"] != "lora_affinity" || got["r1"] != "" || got["r3"] != "locality" {
		t.Errorf("explained as %s with %v", x.Why, got)
	}
}

// Whatever the filters and the state of the pool, there is a decision as long
// as there is a candidate, it is one of the candidates, and the fallbacks are
// others of them.
func TestNarrowingNeverEmpties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "replicas")
		some := func(what string) string { return rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, what) }
		policy := rapid.SampledFrom([]Policy{&RoundRobin{}, Random{}, PowerOfTwo{}, LeastRequests{}, ThroughputAware{},
			must(NewSession(SessionOptions{Fallbacks: 2}))}).Draw(t, "policy")
		p, clock := newTestPool(policy, n, func(c *PoolConfig) {
			c.Limit = rapid.IntRange(0, 4).Draw(t, "limit")
			c.Filters = Filters{
				Sticky: rapid.Bool().Draw(t, "sticky"), LoRA: rapid.Bool().Draw(t, "lora"), Locality: rapid.Bool().Draw(t, "locality"),
				Spill: rapid.IntRange(0, 3).Draw(t, "spill"), LoRASlots: rapid.IntRange(1, 2).Draw(t, "slots"),
				Node: some("own node"), Zone: some("own zone"),
			}
			for i := range c.Replicas {
				c.Replicas[i].Node, c.Replicas[i].Zone = some("node"), some("zone")
			}
		})
		live := map[ID]string{}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { checkAdapters(t, p) },
			"decide": func(t *rapid.T) {
				change := []func(*Request){withLoRA(rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "adapter"))}
				if s := rapid.IntRange(0, 4).Draw(t, "session"); s > 0 {
					change = append(change, inSession(s))
				}
				may := len(p.candidates(&Request{}, clock.now))
				d, id := decide(p, change...)
				if may == 0 {
					if d.Server != "" {
						t.Fatalf("%+v without a candidate", d)
					}
					return
				}
				names := map[string]bool{}
				for _, name := range []string{d.Server, d.Fallbacks[0], d.Fallbacks[1]} {
					if name != "" {
						names[name] = true
					}
				}
				if len(names) != min(3, may) {
					t.Fatalf("%d of %d candidates in %+v", len(names), may, d)
				}
				live[id] = d.Server
			},
			"first token": func(t *rapid.T) {
				for id, s := range live {
					p.FirstToken(id, []byte(s))
					break
				}
			},
			"finish": func(t *rapid.T) {
				server := rapid.SampledFrom(p.replicas).Draw(t, "server").name
				for id := range live {
					p.Finished(Outcome{ID: id, Server: []byte(server), End: rapid.SampledFrom([]End{Served, ClientGone}).Draw(t, "end")})
					delete(live, id)
					break
				}
			},
			"turn": func(t *rapid.T) {
				r := rapid.SampledFrom(p.replicas).Draw(t, "replica")
				r.down = !r.down
				p.refresh()
			},
			"wait": func(t *rapid.T) { clock.now += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond },
		})
	})
}

// checkAdapters compares the adapters of replicas with their reservations.
func checkAdapters(t *rapid.T, p *Pool) {
	lora := map[*Replica]map[string]int{}
	for _, i := range p.account.byID {
		v := &p.account.slots[i]
		if lora[v.replica] == nil {
			lora[v.replica] = map[string]int{}
		}
		if v.request.LoRA != "" {
			lora[v.replica][v.request.LoRA]++
		}
	}
	for _, r := range p.replicas {
		idle := 0
		for _, a := range r.adapters.list {
			if a.inFlight != lora[r][a.name] {
				t.Fatalf("%s counts %d in flight for %s, its reservations %d", r.name, a.inFlight, a.name, lora[r][a.name])
			}
			delete(lora[r], a.name)
			if a.inFlight == 0 {
				idle++
			}
		}
		if len(lora[r]) > 0 || idle > 0 && len(r.adapters.list) > r.adapters.slots {
			t.Fatalf("%s with %d slots has %v, and not %v", r.name, r.adapters.slots, r.adapters.list, lora[r])
		}
	}
}

func TestFiltersDoNotAllocate(t *testing.T) {
	p, clock := newTestPool(LeastRequests{}, 64, withFilters(Filters{Sticky: true, LoRA: true, Spill: 64}), places)
	p.replicas[5].adapters.reserve("sql")
	p.replicas[2].adapters.reserve("sql")
	for n := range 100 {
		decide(p, inSession(n))
	}
	r := &Request{ID: newID(), Pool: p, Session: 1 << 40, HasSession: true, LoRA: "sql"}
	if n := testing.AllocsPerRun(100, func() { p.rank(r, clock.now) }); n > 0 || p.why == 0 {
		t.Errorf("%v allocations a decision, narrowed by set %d", n, p.why)
	}
}

func BenchmarkFilters(b *testing.B) {
	p, clock := newTestPool(LeastRequests{}, 64, withFilters(Filters{Sticky: true, LoRA: true, Spill: 64}), places)
	p.replicas[5].adapters.reserve("sql")
	r := &Request{ID: newID(), Pool: p, Session: 1 << 40, HasSession: true, LoRA: "sql"}
	b.ReportAllocs()
	for b.Loop() {
		p.rank(r, clock.now)
	}
}
