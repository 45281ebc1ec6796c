package policy

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// filtered gives a pool these filters.
func filtered(spill int, filters ...decider.Filter) func(*decider.PoolConfig) {
	return func(c *decider.PoolConfig) { c.Filters, c.Spill = filters, spill }
}

// places puts r0 on the agent's node, r1 and r2 in its zone, the rest elsewhere.
func places(c *decider.PoolConfig) {
	c.Filters = append(slices.Clone(c.Filters), Locality{})
	c.Node, c.Zone = "n1", "a"
	c.Replicas[0].Node = "n1"
	c.Replicas[1].Zone, c.Replicas[2].Zone = "a", "a"
}

func TestLocalityPrefersNodeThenZone(t *testing.T) {
	p := decidertest.New(Random{}, 5, filtered(4), places)
	if d, _ := p.Send(); d.Server != "r0" || d.Why != "test+locality" || d.Fallbacks[1] == "" {
		t.Errorf("got %+v, want the agent's own node and fallbacks elsewhere", d)
	}
	p.Drain("r0")
	for s := range p.OneByOne(200) {
		if s != "r1" && s != "r2" {
			t.Errorf("sent to %s, not to the zone", s)
		}
	}
	p.Drain("r1", "r2")
	counts := p.OneByOne(200)
	if d, _ := p.Send(); len(counts) != 2 || d.Why != "test" {
		t.Errorf("with nothing near: %v, %s", counts, d.Why)
	}
}

func TestLocalitySpills(t *testing.T) {
	p := decidertest.New(LeastRequests{}, 5, filtered(4), places)
	p.SetInFlight("r0", 4)
	if d, _ := p.Send(); d.Server != "r0" {
		t.Errorf("left its node for %s at the bound", d.Server)
	} // now 5
	if d, id := p.Send(); d.Server != "r1" && d.Server != "r2" {
		t.Errorf("sent to %s, want the zone when the node is loaded", d.Server)
	} else {
		p.End(id, d.Server)
	}
	p.SetInFlight("r1", 6)
	p.SetInFlight("r2", 5)
	if d, _ := p.Send(); d.Server != "r3" && d.Server != "r4" {
		t.Errorf("sent to %s, want elsewhere when all near are loaded", d.Server)
	}
}

// adapters are the replicas that have an adapter in the explanation of a request
// for it.
func adapters(p *decidertest.Pool, name string) map[string]bool {
	has := map[string]bool{}
	for replica, terms := range p.Terms(decidertest.WithLoRA(name)) {
		has[replica] = terms["has_lora"] == 1
	}
	return has
}

func TestLoRAAffinityRanks(t *testing.T) {
	p := decidertest.New(expression(t, "in_flight + (has_lora ? 0 : 0)"), 4, filtered(2, LoRAAffinity{}))
	for _, s := range []string{"r0", "r1"} {
		p.ServedBy(s, decidertest.WithLoRA("other"))
	}
	first, id := p.Send(decidertest.WithLoRA("sql"))
	if first.Server != "r2" && first.Server != "r3" {
		t.Errorf("a new adapter went to %s, which has others", first.Server)
	}
	if first.Why != "test+lora_affinity" {
		t.Errorf("why %s", first.Why)
	}
	for range 2 {
		if d, _ := p.Send(decidertest.WithLoRA("sql")); d.Server != first.Server {
			t.Errorf("sent to %s, but %s has it", d.Server, first.Server)
		}
	}
	// Three in flight against none elsewhere: a second replica gets the adapter.
	second, _ := p.Send(decidertest.WithLoRA("sql"))
	if second.Server == first.Server || second.Server == "r0" || second.Server == "r1" {
		t.Errorf("a hot adapter went on to %s", second.Server)
	}
	p.Serve(id, first.Server)
	if has := adapters(p, "sql"); !has[first.Server] || !has[second.Server] || has["r0"] {
		t.Errorf("the replicas with the adapter are %v", has)
	}
	if d, _ := p.Send(); d.Why != "test" {
		t.Errorf("a request without an adapter was narrowed: %s", d.Why)
	}
}

func TestStickySessions(t *testing.T) {
	p := decidertest.New(Random{}, 8, filtered(3, StickySessions{}))
	for n := range 50 {
		first, id := p.Send(decidertest.InSession(n))
		p.End(id, first.Server)
		for range 3 {
			d, id := p.Send(decidertest.InSession(n))
			if d.Server != first.Server || d.Why != "test+sticky_sessions" || d.Fallbacks[1] == "" {
				t.Fatalf("session %d moved from %s: %+v", n, first.Server, d)
			}
			p.End(id, first.Server)
		}
	}
	// The session follows the replica that really served.
	d, id := p.Send(decidertest.InSession(1000))
	served := "r0"
	if d.Server == served {
		served = "r1"
	}
	p.End(id, served)
	if d, _ := p.Send(decidertest.InSession(1000)); d.Server != served {
		t.Errorf("sent to %s, but %s served the session last", d.Server, served)
	}
	// It leaves a replica that is loaded, or down, and stays where it went.
	p.SetInFlight(served, 3)
	d, _ = p.Send(decidertest.InSession(1000))
	if d.Server == served || d.Why != "test" {
		t.Errorf("stayed on the loaded %s: %s", served, d.Why)
	}
	p.Drain(d.Server)
	if next, _ := p.Send(decidertest.InSession(1000)); next.Server == d.Server {
		t.Errorf("sent to %s, which takes no requests", d.Server)
	}
}

// Sessions and counts outlive a reload that keeps the filters.
func TestFiltersOutliveAReload(t *testing.T) {
	p := decidertest.New(Random{}, 8, filtered(3, StickySessions{}))
	first := p.Served(decidertest.InSession(1)).Server
	p.Served(decidertest.InSession(1))
	p.Apply(filtered(3, StickySessions{}))
	if d := p.Served(decidertest.InSession(1)); d.Server != first {
		t.Errorf("the session moved from %s to %s", first, d.Server)
	}
	want := []decider.Counter{{Name: `narrowed_total{filter="sticky_sessions"}`, Value: 2}}
	if got := p.Status().PolicyStats; !slices.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestFiltersCombine(t *testing.T) {
	p := decidertest.New(LeastRequests{}, 5, filtered(9, StickySessions{}, LoRAAffinity{}), places)
	for _, s := range []string{"r1", "r3"} {
		p.FirstToken(p.SendTo(s, decidertest.WithLoRA("sql")), []byte(s))
	}
	before := p.Status().PolicyStats
	d, _ := p.Send(decidertest.WithLoRA("sql"), decidertest.InSession(1))
	if d.Server != "r1" || d.Why != "test+lora_affinity+locality" || d.Fallbacks[1] == "" || slices.Contains(d.Fallbacks[:], "r1") {
		t.Errorf("got %+v, want the replica in the zone that has the adapter", d)
	}
	want := slices.Clone(before)
	want[1].Value++
	want[2].Value++
	if names := []string{want[0].Name, want[1].Name, want[2].Name}; !slices.Equal(names,
		[]string{`narrowed_total{filter="sticky_sessions"}`, `narrowed_total{filter="lora_affinity"}`, `narrowed_total{filter="locality"}`}) {
		t.Errorf("counters %v", names)
	}
	if counts := p.Status().PolicyStats; !slices.Equal(counts, want) {
		t.Errorf("counted %v, want %v", counts, want)
	}
	x := p.Explain(p.Request(decidertest.WithLoRA("sql")))
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
func TestFiltersNeverEmptyTheCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "replicas")
		some := func(what string) string { return rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, what) }
		policy := rapid.SampledFrom([]decider.Policy{&RoundRobin{}, Random{}, PowerOfTwo{}, LeastRequests{}, ThroughputAware{},
			must(NewSession(SessionOptions{Fallbacks: 2}))}).Draw(t, "policy")
		p := decidertest.New(policy, n, func(c *decider.PoolConfig) {
			c.Limit = rapid.IntRange(0, 4).Draw(t, "limit")
			for _, f := range []decider.Filter{StickySessions{}, LoRAAffinity{}, Locality{}} {
				if rapid.Bool().Draw(t, f.Name()) {
					c.Filters = append(c.Filters, f)
				}
			}
			c.Spill, c.LoRASlots = rapid.IntRange(0, 3).Draw(t, "spill"), rapid.IntRange(1, 2).Draw(t, "slots")
			c.Node, c.Zone = some("own node"), some("own zone")
			for i := range c.Replicas {
				c.Replicas[i].Node, c.Replicas[i].Zone = some("node"), some("zone")
			}
		})
		drained := map[string]bool{}
		live := map[decider.ID]string{}
		t.Repeat(map[string]func(*rapid.T){
			"decide": func(t *rapid.T) {
				change := []func(*decider.Request){decidertest.WithLoRA(rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "adapter"))}
				if s := rapid.IntRange(0, 4).Draw(t, "session"); s > 0 {
					change = append(change, decidertest.InSession(s))
				}
				may := map[string]bool{}
				for _, r := range p.Status().Replicas {
					if r.State == "up" {
						may[r.Name] = true
					}
				}
				d, id := p.Send(change...)
				if len(may) == 0 {
					if d.Server != "" {
						t.Fatalf("%+v without a candidate", d)
					}
					return
				}
				names := map[string]bool{}
				for _, name := range []string{d.Server, d.Fallbacks[0], d.Fallbacks[1]} {
					if may[name] {
						names[name] = true
					}
				}
				if len(names) != min(3, len(may)) {
					t.Fatalf("%d of %d candidates in %+v", len(names), len(may), d)
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
				server := rapid.SampledFrom(p.Config.Replicas).Draw(t, "server").Name
				for id := range live {
					p.Finished(decider.Outcome{ID: id, Server: []byte(server), End: rapid.SampledFrom([]decider.End{decider.Served, decider.ClientGone}).Draw(t, "end")})
					delete(live, id)
					break
				}
			},
			"turn": func(t *rapid.T) {
				name := rapid.SampledFrom(p.Config.Replicas).Draw(t, "replica").Name
				if drained[name] = !drained[name]; drained[name] {
					p.Drain(name)
				} else {
					p.Undrain(name)
				}
			},
			"wait": func(t *rapid.T) {
				p.Clock.Advance(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			},
		})
	})
}

// allFilters is a pool of 64 replicas with all filters, two of which have the
// adapter sql.
func allFilters() *decidertest.Pool {
	p := decidertest.New(LeastRequests{}, 64, filtered(64, StickySessions{}, LoRAAffinity{}), places)
	p.SendTo("r5", decidertest.WithLoRA("sql"))
	p.SendTo("r2", decidertest.WithLoRA("sql"))
	return p
}

func TestFiltersDoNotAllocate(t *testing.T) {
	p := allFilters()
	p.CheckAllocations(t, 200, func(r *decider.Request, n int) {
		r.HasSession, r.Session, r.LoRA = true, decidertest.Key(uint64(n%100)), "sql"
	})
	for _, c := range p.Status().PolicyStats {
		if c.Value == 0 {
			t.Errorf("%s is 0: the filter did nothing", c.Name)
		}
	}
}

func BenchmarkFilters(b *testing.B) {
	p := allFilters()
	r := p.Request(func(r *decider.Request) { r.Session, r.HasSession, r.LoRA = 1<<40, true, "sql" })
	var d decider.Decision
	end := decider.Outcome{ID: r.ID, Server: []byte("r2")}
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(r, &d)
		p.Finished(end)
	}
}
