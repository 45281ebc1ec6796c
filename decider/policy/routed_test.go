package policy

import (
	"math"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

func TestPrefixAffinity(t *testing.T) {
	p := decidertest.New(must(NewPrefixAffinity(PrefixAffinityDefaults)), 4)
	home := p.Served(document(1, 10, 0))
	for range 50 {
		d, _ := p.Send(document(1, 10, 0))
		if d.Server != home.Server {
			t.Fatalf("sent to %s what %s was sent before", d.Server, home.Server)
		}
	}
	// One block of 20 in common is below the threshold: the smallest tree wins.
	for range 50 {
		d, id := p.Send(document(1, 1, 19*block))
		if d.Server == home.Server {
			t.Fatal("a prompt that matches a twentieth went to the largest tree")
		}
		p.End(id, d.Server)
	}
}

// Of the replicas with the longest match the least loaded one wins.
func TestPrefixAffinityTakesTheLeastLoadedOfTheLongestMatch(t *testing.T) {
	p := decidertest.New(must(NewPrefixAffinity(PrefixAffinityDefaults)), 4)
	p.ServedBy("r1", document(1, 10, 0))
	p.ServedBy("r2", document(1, 10, 0))
	p.ServedBy("r3", document(1, 5, 0))
	p.ServedBy("r0", document(1, 10, 0))
	p.SetInFlight("r1", 5)
	p.SetInFlight("r0", 3)
	if d, _ := p.Send(document(1, 10, 0)); d.Server != "r2" {
		t.Errorf("sent to %s", d.Server)
	}
}

func TestPrefixAffinityIsPowerOfTwoOutOfBalance(t *testing.T) {
	o := PrefixAffinityDefaults
	o.ImbalancedThreshold = 10
	p := decidertest.New(must(NewPrefixAffinity(o)), 4)
	home := p.Served(document(1, 10, 0))
	p.SetInFlight(home.Server, 10)
	if d, _ := p.Send(document(1, 10, 0)); d.Server != home.Server {
		t.Errorf("at the threshold sent to %s", d.Server)
	}
	for range 20 {
		if d, _ := p.Send(document(1, 10, 0)); d.Server == home.Server {
			t.Error("above the threshold the most loaded of four won a draw of two")
		}
	}
}

func TestPrefixAffinityEvicts(t *testing.T) {
	o := PrefixAffinityDefaults
	o.DoEviction, o.EvictionThresholdChars, o.EvictionTargetChars = true, 100*decider.BlockBytes, 90*decider.BlockBytes
	policy := must(NewPrefixAffinity(o))
	p := decidertest.New(policy, 1)
	for n := range 20 {
		p.ServedBy("r0", document(n, 10, 0))
	}
	if n := blocksSent(&policy.routed)["r0"]; n != 200 {
		t.Fatalf("%d blocks before the interval, want 200", n)
	}
	p.Clock.Advance(10 * time.Second)
	p.ServedBy("r0", document(99, 10, 0))
	if n := blocksSent(&policy.routed)["r0"]; n != 100 {
		t.Errorf("%d blocks, want the target of 90 and 10 that came", n)
	}
	if policy.model.At(0).Match(keys(19, 10)) != 10 || policy.model.At(0).Match(keys(0, 10)) != 0 {
		t.Error("not the least recently sent were forgotten")
	}
}

// Whatever a client sends, the remembered part is bounded.
func TestRoutedIsBounded(t *testing.T) {
	policy := must(NewPrefixAffinity(PrefixAffinityDefaults))
	policy.capacity = 1000
	p := decidertest.New(policy, 2)
	for n := range 5000 {
		p.ServedBy("r0", document(n, 10, 0))
	}
	for server, n := range blocksSent(&policy.routed) {
		if n > 1000 {
			t.Errorf("%d blocks are remembered of %s, want 1000 at most", n, server)
		}
	}
}

func TestRoutedLearnsWhoServed(t *testing.T) {
	policy := must(NewCacheAware(CacheAwareDefaults))
	p := decidertest.New(policy, 4)
	d, id := p.Send(document(1, 10, 0))
	other := "r0"
	if d.Server == other {
		other = "r1"
	}
	p.Serve(id, other)
	if got := blocksSent(&policy.routed)[other]; got != 10 {
		t.Errorf("%d blocks are known of the replica that served", got)
	}
}

func TestCacheAware(t *testing.T) {
	p := decidertest.New(must(NewCacheAware(CacheAwareDefaults)), 4)
	home := p.Served(document(1, 10, 0)).Server
	next := func(common int) string {
		d, id := p.Send(document(1, common, (10-common)*block))
		p.End(id, d.Server)
		return d.Server
	}
	load := func(own, others int) {
		for _, r := range p.Config.Replicas {
			p.SetInFlight(r.Name, others)
		}
		p.SetInFlight(home, own)
	}
	if s := next(4); s != home {
		t.Errorf("a match of 0.4 went to %s", s)
	}
	if s := next(3); s == home {
		t.Error("a match of 0.3 went to the largest tree")
	}
	load(64, 0)
	if s := next(10); s != home {
		t.Error("a difference of 64 counts as out of balance")
	}
	load(300, 200)
	if s := next(10); s != home {
		t.Error("300 to 200 counts as out of balance, though it is not 1.5 times as many")
	}
	load(65, 0)
	if s := next(10); s == home {
		t.Error("a difference of 65 does not count as out of balance")
	}
}

func TestPrefixCache(t *testing.T) {
	p := decidertest.New(must(NewPrefixCache(PrefixCacheDefaults)), 4)
	home := p.Served(document(1, 10, 0)).Server
	load := func(own, others int) {
		for _, r := range p.Config.Replicas {
			p.SetInFlight(r.Name, others)
		}
		p.SetInFlight(home, own)
	}
	next := func() string {
		d, id := p.Send(document(1, 10, 0))
		p.Finished(decider.Outcome{ID: id, End: decider.Denied})
		return d.Server
	}
	load(0, 0)
	if s := next(); s != home {
		t.Errorf("with no load sent to %s", s)
	}
	load(8, 0) // mean 2, standard deviation 3.5
	if s := next(); s == home {
		t.Error("a load of 8 passed a bound of 5.5")
	}
	load(0, 9)
	if s := next(); s != home {
		t.Error("out of balance, the least loaded was not taken")
	}
	load(20, 0)
	if s := next(); s == home {
		t.Error("out of balance, the most loaded was taken")
	}
}

func TestKVCost(t *testing.T) {
	p := decidertest.New(must(NewKVCost(KVCostDefaults)), 3)
	home := p.Served(document(1, 10, 0))
	d, id := p.Send(document(1, 10, 0))
	if d.Server != home.Server {
		t.Errorf("the second went to %s, not to the cache", d.Server)
	}
	// Ten blocks are in use and computed: what is shared costs nothing more, so
	// the same prompt comes again; another one goes elsewhere.
	p.FirstToken(id, []byte(d.Server))
	for replica, terms := range p.Terms(document(1, 10, 0)) {
		prefill, used := 10.0, 10.0
		if replica == home.Server {
			prefill, used = 1.0/block, 11 // one of them for the output
		}
		if math.Abs(terms["prefill_blocks"]-prefill) > 1e-9 || terms["blocks_in_use"] != used {
			t.Errorf("%s: terms %v, want %v and %v", replica, terms, prefill, used)
		}
	}
	if d, _ := p.Send(document(2, 10, 0)); d.Server == home.Server {
		t.Error("another prompt went to the replica in use")
	}
}

// With nothing known, every policy that follows prefixes spreads by chance.
func TestPrefixPoliciesSpreadTies(t *testing.T) {
	for name, policy := range map[string]decider.Policy{
		"prefix_affinity": must(NewPrefixAffinity(PrefixAffinityDefaults)),
		"cache_aware":     must(NewCacheAware(CacheAwareDefaults)),
		"prefix_cache":    must(NewPrefixCache(PrefixCacheDefaults)),
		"kv_cost":         must(NewKVCost(KVCostDefaults)),
	} {
		t.Run(name, func(t *testing.T) { decidertest.New(policy, 5).CheckTies(t, draws) })
	}
}

func TestPolicyOptionsAreChecked(t *testing.T) {
	bad := map[string][]Validator{}
	add := func(option string, o Validator) { bad[option] = append(bad[option], o) }
	for _, x := range []struct {
		option string
		change func(*PrefixAffinityOptions)
	}{
		{"imbalanced_threshold", func(o *PrefixAffinityOptions) { o.ImbalancedThreshold = math.NaN() }},
		{"imbalanced_threshold", func(o *PrefixAffinityOptions) { o.ImbalancedThreshold = -1 }},
		{"match_rate_threshold", func(o *PrefixAffinityOptions) { o.MatchRateThreshold = 1.1 }},
		{"eviction_threshold_chars", func(o *PrefixAffinityOptions) { o.EvictionThresholdChars = 0 }},
		{"eviction_target_chars", func(o *PrefixAffinityOptions) { o.EvictionTargetChars = 500_000 }},
		{"eviction_interval_secs", func(o *PrefixAffinityOptions) { o.EvictionIntervalSecs = 0 }},
	} {
		o := PrefixAffinityDefaults
		x.change(&o)
		add(x.option, o)
		if _, err := NewPrefixAffinity(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	for _, x := range []struct {
		option string
		change func(*CacheAwareOptions)
	}{
		{"cache_threshold", func(o *CacheAwareOptions) { o.CacheThreshold = -.1 }},
		{"balance_abs_threshold", func(o *CacheAwareOptions) { o.BalanceAbsThreshold = -1 }},
		{"balance_rel_threshold", func(o *CacheAwareOptions) { o.BalanceRelThreshold = .9 }},
		{"max_tree_size", func(o *CacheAwareOptions) { o.MaxTreeSize = 0 }},
	} {
		o := CacheAwareDefaults
		x.change(&o)
		add(x.option, o)
		if _, err := NewCacheAware(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	for option, o := range map[string]PrefixCacheOptions{"imbalance_count": {ImbalanceCount: -1}, "standard_deviations": {StandardDeviations: -1}} {
		add(option, o)
		if _, err := NewPrefixCache(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	for option, o := range map[string]KVCostOptions{"prefill_load_scale": {PrefillLoadScale: -1}, "overlap_credit": {OverlapCredit: math.NaN()}} {
		add(option, o)
		if _, err := NewKVCost(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	for option, list := range bad {
		for _, o := range list {
			wantFault(t, o, option)
		}
	}
}

func TestPrefixPoliciesDoNotAllocate(t *testing.T) {
	affinity, aware, cache := must(NewPrefixAffinity(PrefixAffinityDefaults)), must(NewCacheAware(CacheAwareDefaults)), must(NewPrefixCache(PrefixCacheDefaults))
	affinity.capacity, aware.capacity, cache.capacity = 200, 200, 200 // so that eviction is part of the steady state
	for _, policy := range []decider.Policy{
		LeastWork{}, LeastWorkLate{}, LeastTokens{}, must(NewKVCost(KVCostDefaults)), affinity, aware, cache,
	} {
		p := decidertest.New(policy, 64, func(c *decider.PoolConfig) { c.CacheTokens = 50_000 })
		p.CheckAllocations(t, 8000, func(r *decider.Request, n int) {
			r.Cut = n%4 == 0
			decidertest.Document(n%3000, 16, 100)(r)
			r.Input += n % 5000
			p.Clock.Advance(time.Millisecond)
		})
	}
}
