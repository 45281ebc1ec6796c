package main

import (
	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/policy"
)

// policies is the table of routing policies, in the order in which error
// messages list them. To add your own, write one file in decider/policy and one
// line here.
var policies = policy.Table{
	policy.Plain("least_work", func() decider.Policy { return decider.LeastWork{} }),
	policy.Plain("least_work_late", func() decider.Policy { return decider.LeastWorkLate{} }).BindsLate(),
	policy.Plain("least_tokens", func() decider.Policy { return decider.LeastTokens{} }),
	policy.With("kv_aware", decider.TokenDefaults, decider.NewKVAware),
	policy.Plain("least_requests", func() decider.Policy { return decider.LeastRequests{} }),
	policy.Plain("power_of_two", func() decider.Policy { return decider.PowerOfTwo{} }),
	policy.Plain("round_robin", func() decider.Policy { return &decider.RoundRobin{} }),
	policy.Plain("random", func() decider.Policy { return decider.Random{} }),
	policy.With("session", decider.SessionOptions{Fallbacks: 2}, decider.NewSession),
	policy.With("prefix_affinity", decider.PrefixAffinityDefaults, decider.NewPrefixAffinity),
	policy.With("cache_aware", decider.CacheAwareDefaults, decider.NewCacheAware),
	policy.With("prefix_cache", decider.PrefixCacheDefaults, decider.NewPrefixCache),
	policy.With("kv_cost", decider.KVCostDefaults, decider.NewKVCost),
	policy.With("weighted", decider.WeightedDefaults, decider.NewWeighted),
	policy.With("expression", decider.ExpressionOptions{}, decider.NewExpression),
	policy.Plain("throughput_aware", func() decider.Policy { return decider.ThroughputAware{} }),
}

// checks are the checks of a configuration that need the policies.
var checks = config.Checks{
	Policies: policies.Names(),
	Policy:   func(p *config.Policy) error { return policies.Check(p.Name, p) },
}
