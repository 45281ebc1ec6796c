package main

import (
	"pointsman/decider"
	"pointsman/decider/policy"
)

// policies are the policies that can be compared.
var policies = policy.Table{
	policy.Plain("least_work", func() decider.Policy { return policy.LeastWork{} }),
	policy.Plain("least_work_late", func() decider.Policy { return policy.LeastWorkLate{} }).BindsLate(),
	policy.With("kv_aware", decider.TokenDefaults, policy.NewKVAware),
	policy.Plain("least_requests", func() decider.Policy { return policy.LeastRequests{} }),
	policy.Plain("power_of_two", func() decider.Policy { return policy.PowerOfTwo{} }),
	policy.Plain("round_robin", func() decider.Policy { return &policy.RoundRobin{} }),
	policy.Plain("random", func() decider.Policy { return policy.Random{} }),
	policy.With("session", policy.SessionDefaults, policy.NewSession),
	policy.With("prefix_affinity", policy.PrefixAffinityDefaults, policy.NewPrefixAffinity),
	policy.With("cache_aware", policy.CacheAwareDefaults, policy.NewCacheAware),
	policy.With("prefix_cache", policy.PrefixCacheDefaults, policy.NewPrefixCache),
	policy.With("kv_cost", policy.KVCostDefaults, policy.NewKVCost),
	policy.Plain("lmetric", func() decider.Policy { return policy.LMetric{} }),
	policy.With("predicted_latency", policy.PredictedLatencyDefaults, policy.NewPredictedLatency),
	policy.With("weighted", policy.WeightedDefaults, policy.NewWeighted),
	policy.With("expression", policy.ExpressionOptions{}, policy.NewExpression),
}
