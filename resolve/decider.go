package resolve

import (
	"maps"
	"slices"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/discover"
	"pointsman/session"
)

// modelHeaders may name the model of a body that is too long to show it. The
// first is that of the Gateway API Inference Extension.
var modelHeaders = []string{"x-gateway-model-name", "x-model"}

// Decider is the configuration of the decider. Pools with a source have no
// replicas in it. epoch is when the decider's clock was 0.
func (r *Config) Decider(epoch time.Time) decider.Config {
	c := r.File
	dc := decider.Config{
		DefaultPool: c.DefaultPool,
		Session:     session.NewHeaders(c.Session.Headers),
		ModelHeader: session.NewHeaders(modelHeaders),
		ScanLimit:   int(c.Scan.Limit),
		Routes:      map[string][]decider.Split{},
	}
	for model, route := range c.Models {
		// In a fixed order, so that a session keeps its branch over restarts.
		for _, pool := range slices.Sorted(maps.Keys(route.Split)) {
			dc.Routes[model] = append(dc.Routes[model], decider.Split{Pool: pool, Weight: route.Split[pool]})
		}
	}
	for i := range r.Pools {
		dc.Pools = append(dc.Pools, r.deciderPool(&r.Pools[i], epoch))
	}
	return dc
}

func (r *Config) deciderPool(p *Pool, epoch time.Time) decider.PoolConfig {
	c := r.File
	pc := decider.PoolConfig{
		Name: p.Name, Models: p.Models, LoRA: p.LoRA,
		Policy: p.Policy, PolicyName: p.Pool.Policy.Name, PolicyKey: p.PolicyKey,
		Discover:    len(p.Replicas) == 0 && p.Source() == (discover.Source{}),
		CacheTokens: p.CacheTokens,
		Limit:       p.MaxRequests, RetryAfter: p.RetryAfter, SlowStart: p.SlowStart, Lease: c.Lease,
		Admission: deciderAdmission(p.Admission, epoch),
		Filters:   filters(p), Spill: p.Spill, LoRASlots: p.LoRASlots,
		Node: c.Agent.Node, Zone: c.Agent.Zone,
	}
	for _, r := range p.Ordered() {
		pc.Replicas = append(pc.Replicas, decider.ReplicaConfig{
			Name: r.Name, Address: r.Address, Zone: r.Zone, Node: r.Node, Weight: r.Weight, Limit: r.MaxRequests,
			CacheTokens: r.CacheTokens,
		})
	}
	return pc
}

// filters are the filters of a pool, in the order in which they narrow its
// candidates. To add your own, write one file in decider/policy and one line here.
func filters(p *Pool) (list []decider.Filter) {
	for _, f := range []struct {
		on     bool
		filter decider.Filter
	}{
		{p.StickySessions, policy.StickySessions{}},
		{p.LoRAAffinity, policy.LoRAAffinity{}},
		{p.Locality, policy.Locality{}},
	} {
		if f.on {
			list = append(list, f.filter)
		}
	}
	return list
}
