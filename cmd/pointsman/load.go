package main

import (
	"maps"
	"os"
	"slices"
	"time"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/discover"
	"pointsman/engine"
	"pointsman/engine/metrics"
	"pointsman/session"
)

// load reads the configuration with all checks that this program knows.
func load(path string) (*config.Config, error) {
	return config.Load(path, os.Getenv, config.Checks{
		Policies: policyNames(),
		Policy: func(p *config.Policy) error {
			_, _, err := newPolicy(p)
			return err
		},
	})
}

// deciderConfig turns the file's configuration into the decider's. epoch is
// when the decider's clock was 0.
func deciderConfig(c *config.Config, epoch time.Time) (decider.Config, error) {
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
	for _, p := range c.Ordered() {
		policy, key, err := newPolicy(&p.Policy)
		if err != nil {
			return dc, err
		}
		a, err := admissionOf(c, p)
		if err != nil {
			return dc, err
		}
		pc := decider.PoolConfig{
			Name: p.Name, Models: p.Models, LoRA: p.LoRA,
			Policy: policy, PolicyName: p.Policy.Name, PolicyKey: key,
			Discover:    len(p.Replicas) == 0 && sourceOf(p) == (discover.Source{}),
			CacheTokens: p.CacheTokens,
			Limit:       p.MaxRequests, RetryAfter: p.RetryAfter, SlowStart: p.SlowStart, Lease: c.Lease,
			Admission: deciderAdmission(a, epoch),
			Filters: decider.Filters{
				Sticky: p.StickySessions, LoRA: p.LoRAAffinity, Locality: p.Locality,
				Spill: p.Spill, LoRASlots: p.LoRASlots, Node: c.Agent.Node, Zone: c.Agent.Zone,
			},
		}
		for _, r := range p.Ordered() {
			pc.Replicas = append(pc.Replicas, decider.ReplicaConfig{
				Name: r.Name, Address: r.Address, Zone: r.Zone, Node: r.Node, Weight: r.Weight, Limit: r.MaxRequests,
				CacheTokens: r.CacheTokens,
			})
		}
		dc.Pools = append(dc.Pools, pc)
	}
	return dc, nil
}

// engineOptions says what the engines of each pool are.
func engineOptions(c *config.Config) map[string]engine.PoolOptions {
	options := map[string]engine.PoolOptions{}
	for name, p := range c.Pools {
		o := engine.PoolOptions{
			Kind: metrics.KindOf(p.Engine), Metrics: p.Metrics, Events: engine.EventOptions(p.KVEvents),
			Replicas: map[string]engine.EventOptions{},
		}
		for _, r := range p.Replicas {
			if r.KVEvents.Port > 0 {
				o.Replicas[r.Name] = engine.EventOptions(r.KVEvents)
			}
		}
		options[name] = o
	}
	return options
}

// modelHeaders may name the model of a body that is too long to show it; the
// first is that of the Gateway API Inference Extension.
var modelHeaders = []string{"x-gateway-model-name", "x-model"}
