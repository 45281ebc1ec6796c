package resolve

import (
	"maps"
	"slices"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/budget"
	"pointsman/decider/policy"
	"pointsman/discover"
	"pointsman/intake"
	"pointsman/session"
)

// modelHeaders may name the model of a body that is too long to show it. The
// first is that of the Gateway API Inference Extension.
var modelHeaders = []string{"x-gateway-model-name", "x-model"}

// Intake is the configuration of the intake and of its decider. Pools with a
// source have no replicas in it.
func (r *Config) Intake() intake.Config {
	c := r.File
	ic := intake.Config{
		DefaultPool:   c.DefaultPool,
		Session:       session.NewHeaders(c.Session.Headers),
		SessionFields: sessionFields(c.Session.Body),
		ModelHeader:   session.NewHeaders(modelHeaders),
		ScanLimit:     int(c.Scan.Limit),
		OneModel:      c.Scan.DuplicateModels == "refuse",
		BodyPriority:  c.HAProxy.BodyPriority,
		ListModels:    c.ListModels,
		Routes:        map[string][]intake.Split{},
		Classes:       map[string]intake.Classes{},
	}
	ic.Budgets, ic.BudgetKeys = budgets(&c.Budgets), session.NewHeaders(c.Budgets.KeyHeaders)
	for model, route := range c.Models {
		// In a fixed order, so that a session keeps its branch over restarts.
		for _, pool := range slices.Sorted(maps.Keys(route.Split)) {
			ic.Routes[model] = append(ic.Routes[model], intake.Split{Pool: pool, Weight: route.Split[pool]})
		}
	}
	ic.Shadow = true
	for i := range r.Pools {
		p := &r.Pools[i]
		ic.Shadow = ic.Shadow && c.Shadow(p.Pool) == 1
		ic.Pools = append(ic.Pools, r.deciderPool(p))
		if p.Admission != nil {
			ic.Classes[p.Name] = classes(p.Admission)
		}
	}
	return ic
}

// budgets are the budgets of the file.
func budgets(b *config.Budgets) budget.Config {
	bc := budget.Config{Together: b.Together(), MostAccounts: b.MaxAccounts}
	for _, k := range b.OrderedKeys() {
		sum, _ := k.Sum()
		bc.Keys = append(bc.Keys, budget.Key{Name: k.Name, Sum: sum, Tenant: k.Tenant})
	}
	for _, l := range b.OrderedLimits() {
		bc.Limits = append(bc.Limits, budget.Limit{
			Name: l.Name, By: l.Dimensions(), Keys: l.APIKeys, Tenants: l.Tenants, Models: l.Models,
			PerMinute: int64(l.TokensPerMinute), PerDay: int64(l.TokensPerDay),
		})
	}
	return bc
}

// sessionFields are the fields of those names.
func sessionFields(names []string) (fields []intake.SessionField) {
	for _, name := range names {
		fields = append(fields, intake.SessionFieldOf(name))
	}
	return fields
}

// rankHeader is the header that names a rank, "" if no pool has ranks.
func (r *Config) rankHeader() string {
	for i := range r.Pools {
		if r.Pools[i].DataParallel > 1 {
			return r.File.RankHeader
		}
	}
	return ""
}

// Role is what a replica does of a request, by the name that it has in the configuration.
func Role(name string) decider.Role {
	switch name {
	case config.RolePrefill:
		return decider.RolePrefill
	case config.RoleDecode:
		return decider.RoleDecode
	}
	return decider.RoleBoth
}

// prefills reports whether any pool has replicas that only compute prompts.
func (r *Config) prefills() bool {
	return slices.ContainsFunc(r.Pools, func(p Pool) bool { return p.Prefills() })
}

// PrefillReplicas are the names of the replicas that only compute prompts, by address.
func (r *Config) PrefillReplicas() map[string]string {
	names := map[string]string{}
	for i := range r.Pools {
		for _, replica := range r.Pools[i].Ranked() {
			if replica.Role == config.RolePrefill {
				names[replica.Address] = replica.Name
			}
		}
	}
	return names
}

func (r *Config) deciderPool(p *Pool) decider.PoolConfig {
	c := r.File
	pc := decider.PoolConfig{
		Name: p.Name, Models: p.Models, LoRA: p.LoRA,
		Policy: p.Policy, PolicyName: p.Pool.Policy.Name, PolicyFlow: p.Pool.Policy.Flow(), PolicyKey: p.PolicyKey,
		Discover:    len(p.Replicas) == 0 && p.Source() == (discover.Source{}),
		CacheTokens: p.CacheTokens, CPUCacheTokens: p.CPUCacheTokens, ContextTokens: p.ContextTokens,
		Limit: p.MaxRequests, RetryAfter: p.RetryAfter, SlowStart: p.SlowStart, Lease: c.Lease,
		Admission: deciderAdmission(p.Admission), Shadow: c.Shadow(p.Pool),
		Filters: filters(p), Spill: p.Spill, LoRASlots: p.LoRASlots,
		Node: c.Agent.Node, Zone: c.Agent.Zone,
		PrefillPolicy: p.Prefill, LegTokens: p.PrefillTokens,
	}
	for _, r := range p.Ranked() {
		pc.Replicas = append(pc.Replicas, decider.ReplicaConfig{
			Name: r.Name, Address: r.Address, Zone: r.Zone, Node: r.Node, Weight: r.Weight, Limit: r.MaxRequests,
			CacheTokens: r.CacheTokens, Rank: r.Rank, Role: Role(r.Role),
		})
	}
	return pc
}

// filters are the filters of a pool, in the order in which they narrow its
// candidates. docs/custom-policy.md shows how to add your own.
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
