//go:build ignore

package policy

import (
	"math"
	"testing"
	"time"
)

// sent lets n requests for a document be served by a replica.
func sent(p *Pool, server string, key, blocks, n int) {
	for range n {
		_, id := decide(p, document(key, blocks, 0))
		serve(p, id, server)
	}
}

func TestPrefixAffinity(t *testing.T) {
	p, _ := newTestPool(must(NewPrefixAffinity(PrefixAffinityDefaults)), 4)
	home, id := decide(p, document(1, 10, 0))
	serve(p, id, home.Server)
	for range 50 {
		d, _ := decide(p, document(1, 10, 0))
		if d.Server != home.Server {
			t.Fatalf("sent to %s what %s was sent before", d.Server, home.Server)
		}
	}
	// One block of 20 in common is below the threshold: the smallest tree.
	for range 50 {
		d, id := decide(p, func(r *Request) {
			document(1, 1, 19*testBlock)(r)
		})
		if d.Server == home.Server {
			t.Fatal("a prompt that matches a twentieth went to the largest tree")
		}
		p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
	}
}

// Of the replicas on the deepest match the least loaded one serves.
func TestPrefixAffinityTakesTheLeastLoadedOfTheDeepest(t *testing.T) {
	p, _ := newTestPool(must(NewPrefixAffinity(PrefixAffinityDefaults)), 4)
	sent(p, "r1", 1, 10, 1)
	sent(p, "r2", 1, 10, 1)
	sent(p, "r3", 1, 5, 1)
	sent(p, "r0", 1, 10, 1)
	p.byName["r1"].inFlight, p.byName["r0"].inFlight = 5, 3
	if d, _ := decide(p, document(1, 10, 0)); d.Server != "r2" {
		t.Errorf("sent to %s", d.Server)
	}
}

func TestPrefixAffinityIsPowerOfTwoOutOfBalance(t *testing.T) {
	o := PrefixAffinityDefaults
	o.ImbalancedThreshold = 10
	p, _ := newTestPool(must(NewPrefixAffinity(o)), 4)
	home, id := decide(p, document(1, 10, 0))
	serve(p, id, home.Server)
	p.byName[home.Server].inFlight = 10
	if d, _ := decide(p, document(1, 10, 0)); d.Server != home.Server {
		t.Errorf("at the threshold sent to %s", d.Server)
	}
	for range 20 {
		if d, _ := decide(p, document(1, 10, 0)); d.Server == home.Server {
			t.Error("above the threshold the most loaded of four won a draw of two")
		}
	}
}

func TestPrefixAffinityEvicts(t *testing.T) {
	o := PrefixAffinityDefaults
	o.DoEviction, o.EvictionThresholdChars, o.EvictionTargetChars = true, 100*BlockBytes, 90*BlockBytes
	policy := must(NewPrefixAffinity(o))
	p, clock := newTestPool(policy, 1)
	for n := range 20 {
		sent(p, "r0", n, 10, 1)
	}
	if n := policy.size(p.replicas[0]); n != 200 {
		t.Fatalf("%d blocks before the interval, want 200", n)
	}
	clock.now += 10 * time.Second
	sent(p, "r0", 99, 10, 1)
	if n := policy.size(p.replicas[0]); n != 100 {
		t.Errorf("%d blocks, want the target of 90 and 10 that came", n)
	}
	if policy.model.At(0).Match(docBlocks(19, 10)) != 10 || policy.model.At(0).Match(docBlocks(0, 10)) != 0 {
		t.Error("not the least recently sent were forgotten")
	}
}

func docBlocks(key, n int) []uint64 {
	var r Request
	document(key, n, 0)(&r)
	return r.Blocks
}

// Whatever a client sends, what is remembered of it is bounded.
func TestRoutedIsBounded(t *testing.T) {
	policy := must(NewPrefixAffinity(PrefixAffinityDefaults))
	policy.capacity = 1000
	p, _ := newTestPool(policy, 2)
	for n := range 5000 {
		sent(p, "r0", n, 10, 1)
	}
	for _, r := range p.replicas {
		m := policy.of(r)
		if m.Len() > 1000 {
			t.Errorf("%d blocks are remembered of a replica, want 1000 at most", m.Len())
		}
	}
}

func TestRoutedLearnsWhoServed(t *testing.T) {
	policy := must(NewCacheAware(CacheAwareDefaults))
	p, _ := newTestPool(policy, 4)
	d, id := decide(p, document(1, 10, 0))
	other := "r0"
	if d.Server == other {
		other = "r1"
	}
	serve(p, id, other)
	if got := policy.of(p.byName[other]).Match(docBlocks(1, 10)); got != 10 {
		t.Errorf("%d blocks are known of the replica that served", got)
	}
}

func TestCacheAware(t *testing.T) {
	p, _ := newTestPool(must(NewCacheAware(CacheAwareDefaults)), 4)
	home, id := decide(p, document(1, 10, 0))
	serve(p, id, home.Server)
	h := p.byName[home.Server]
	next := func(common int) string {
		d, id := decide(p, func(r *Request) { document(1, common, (10-common)*testBlock)(r) })
		p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
		return d.Server
	}
	if s := next(4); s != home.Server {
		t.Errorf("a match of 0.4 went to %s", s)
	}
	if s := next(3); s == home.Server {
		t.Error("a match of 0.3 went to the largest tree")
	}
	h.inFlight = 64
	if s := next(10); s != home.Server {
		t.Error("a difference of 64 counts as out of balance")
	}
	for _, r := range p.replicas {
		r.inFlight = 200
	}
	h.inFlight = 300
	if s := next(10); s != home.Server {
		t.Error("300 to 200 counts as out of balance, though it is not 1.5 times as many")
	}
	for _, r := range p.replicas {
		r.inFlight = 0
	}
	h.inFlight = 65
	if s := next(10); s == home.Server {
		t.Error("a difference of 65 does not count as out of balance")
	}
}

func TestPrefixCache(t *testing.T) {
	p, _ := newTestPool(must(NewPrefixCache(PrefixCacheDefaults)), 4)
	home, id := decide(p, document(1, 10, 0))
	serve(p, id, home.Server)
	load := func(itsOwn, others int) {
		for _, r := range p.replicas {
			r.inFlight = others
		}
		p.byName[home.Server].inFlight = itsOwn
	}
	next := func() string {
		d, id := decide(p, document(1, 10, 0))
		p.Finished(Outcome{ID: id, End: Denied})
		return d.Server
	}
	load(0, 0)
	if s := next(); s != home.Server {
		t.Errorf("with no load sent to %s", s)
	}
	load(8, 0) // mean 2, standard deviation 3.5
	if s := next(); s == home.Server {
		t.Error("a load of 8 passed a bound of 5.5")
	}
	load(0, 9)
	if s := next(); s != home.Server {
		t.Error("out of balance, the least loaded was not taken")
	}
	load(20, 0)
	if s := next(); s == home.Server {
		t.Error("out of balance, the most loaded was taken")
	}
}

func TestKVCost(t *testing.T) {
	p, _ := newTestPool(must(NewKVCost(KVCostDefaults)), 3)
	home, id := decide(p, document(1, 10, 0))
	serve(p, id, home.Server)
	d, id := decide(p, document(1, 10, 0))
	if d.Server != home.Server {
		t.Errorf("the second went to %s, not to the cache", d.Server)
	}
	// Ten blocks in use and computed: what is shared costs nothing more, so
	// the same prompt comes again; another one goes elsewhere.
	p.FirstToken(id, []byte(d.Server))
	r := Request{Pool: p}
	document(1, 10, 0)(&r)
	for _, c := range p.Explain(&r).Candidates {
		prefill, used := 10.0, 10.0
		if c.Replica == home.Server {
			prefill, used = 1.0/testBlock, 11 // one of them for the output
		}
		if math.Abs(c.Terms["prefill_blocks"]-prefill) > 1e-9 || c.Terms["blocks_in_use"] != used {
			t.Errorf("%s: terms %v, want %v and %v", c.Replica, c.Terms, prefill, used)
		}
	}
	if d, _ := decide(p, document(2, 10, 0)); d.Server == home.Server {
		t.Error("another prompt went to the replica in use")
	}
}

func TestLeastTokens(t *testing.T) {
	p, _ := newTestPool(LeastTokens{}, 3)
	p.byName["r0"].tokens, p.byName["r1"].tokens, p.byName["r2"].tokens = 300, 100, 200
	p.byName["r1"].inFlight = 50
	if d, _ := decide(p); d.Server != "r1" || d.Fallbacks != [2]string{"r2", "r0"} {
		t.Errorf("order %s %v, want r1 [r2 r0]", d.Server, d.Fallbacks)
	}
	p, _ = newTestPool(LeastTokens{}, 5)
	for s, c := range tally(p, draws, true) {
		near(t, "tie to "+s, c, 1.0/5)
	}
}

// With nothing known, every policy that follows prefixes spreads by chance.
func TestRoutedPoliciesSpreadTies(t *testing.T) {
	for name, policy := range map[string]func() Policy{
		"prefix_affinity": func() Policy { return must(NewPrefixAffinity(PrefixAffinityDefaults)) },
		"cache_aware":     func() Policy { return must(NewCacheAware(CacheAwareDefaults)) },
		"prefix_cache":    func() Policy { return must(NewPrefixCache(PrefixCacheDefaults)) },
		"kv_cost":         func() Policy { return must(NewKVCost(KVCostDefaults)) },
	} {
		p, _ := newTestPool(policy(), 5)
		for s, c := range tally(p, draws, true) {
			near(t, name+": tie to "+s, c, 1.0/5)
		}
	}
}

func TestPolicyOptionsAreChecked(t *testing.T) {
	bad := []error{}
	add := func(_ any, err error) { bad = append(bad, err) }
	for _, change := range []func(*PrefixAffinityOptions){
		func(o *PrefixAffinityOptions) { o.ImbalancedThreshold = math.NaN() },
		func(o *PrefixAffinityOptions) { o.ImbalancedThreshold = -1 },
		func(o *PrefixAffinityOptions) { o.MatchRateThreshold = 1.1 },
		func(o *PrefixAffinityOptions) { o.EvictionThresholdChars = 0 },
		func(o *PrefixAffinityOptions) { o.EvictionTargetChars = 500_000 },
		func(o *PrefixAffinityOptions) { o.EvictionIntervalSecs = 0 },
	} {
		o := PrefixAffinityDefaults
		change(&o)
		add(NewPrefixAffinity(o))
	}
	for _, change := range []func(*CacheAwareOptions){
		func(o *CacheAwareOptions) { o.CacheThreshold = -.1 },
		func(o *CacheAwareOptions) { o.BalanceAbsThreshold = -1 },
		func(o *CacheAwareOptions) { o.BalanceRelThreshold = .9 },
		func(o *CacheAwareOptions) { o.MaxTreeSize = 0 },
	} {
		o := CacheAwareDefaults
		change(&o)
		add(NewCacheAware(o))
	}
	add(NewPrefixCache(PrefixCacheOptions{ImbalanceCount: -1}))
	add(NewPrefixCache(PrefixCacheOptions{StandardDeviations: -1}))
	add(NewKVCost(KVCostOptions{PrefillLoadScale: -1}))
	add(NewKVCost(KVCostOptions{OverlapCredit: math.NaN()}))
	for i, err := range bad {
		if err == nil {
			t.Errorf("case %d is accepted", i)
		}
	}
}

func TestPrefixPoliciesDoNotAllocate(t *testing.T) {
	for _, policy := range []Policy{
		LeastWork{}, LeastTokens{}, must(NewKVCost(KVCostDefaults)), must(NewPrefixAffinity(PrefixAffinityDefaults)),
		must(NewCacheAware(CacheAwareDefaults)), must(NewPrefixCache(PrefixCacheDefaults)),
	} {
		p, clock := newTestPool(policy, 64, func(c *PoolConfig) { c.CacheTokens = 50_000 })
		switch policy := policy.(type) { // so that eviction is part of the steady state
		case *PrefixAffinity:
			policy.capacity = 200
		case *CacheAware:
			policy.capacity = 200
		case *PrefixCache:
			policy.capacity = 200
		}
		names := map[string][]byte{}
		for _, r := range p.replicas {
			names[r.name] = []byte(r.name)
		}
		var r Request
		var d Decision
		n := 0
		step := func() {
			n++
			id := ID{byte(n), byte(n >> 8), byte(n >> 16)}
			blocks := r.Blocks
			r = Request{ID: id, Pool: p, Blocks: blocks, Cut: n%4 == 0}
			document(n%3000, 16, 100)(&r)
			r.Input += n % 5000
			p.Decide(&r, &d)
			server := names[d.Server]
			p.FirstToken(r.ID, server)
			p.Finished(Outcome{ID: r.ID, Server: server})
			clock.now += time.Millisecond
		}
		for range 8000 {
			step()
		}
		if a := testing.AllocsPerRun(2000, step); a != 0 {
			t.Errorf("%T: %v allocations a request", policy, a)
		}
	}
}
