package main

import (
	"errors"
	"fmt"
	"strings"

	"pointsman/config"
	"pointsman/decider"
)

// policies is the table of routing policies, in the order in which refusals
// list them. A policy of your own is one file in decider and one line here.
var policies = []policyEntry{
	policy("least_work", none, func(*struct{}) (decider.Policy, error) { return decider.LeastWork{}, nil }),
	policy(lateBinding, none, func(*struct{}) (decider.Policy, error) { return decider.LeastWorkLate{}, nil }),
	policy("least_tokens", none, func(*struct{}) (decider.Policy, error) { return decider.LeastTokens{}, nil }),
	policy("kv_aware", decider.TokenDefaults, func(o *decider.TokenOptions) (decider.Policy, error) {
		return decider.NewKVAware(*o)
	}),
	policy("least_requests", none, func(*struct{}) (decider.Policy, error) { return decider.LeastRequests{}, nil }),
	policy("power_of_two", none, func(*struct{}) (decider.Policy, error) { return decider.PowerOfTwo{}, nil }),
	policy("round_robin", none, func(*struct{}) (decider.Policy, error) { return &decider.RoundRobin{}, nil }),
	policy("random", none, func(*struct{}) (decider.Policy, error) { return decider.Random{}, nil }),
	policy("session", decider.SessionOptions{Fallbacks: 2}, func(o *decider.SessionOptions) (decider.Policy, error) {
		return decider.NewSession(*o)
	}),
	policy("prefix_affinity", decider.PrefixAffinityDefaults, func(o *decider.PrefixAffinityOptions) (decider.Policy, error) {
		return decider.NewPrefixAffinity(*o)
	}),
	policy("cache_aware", decider.CacheAwareDefaults, func(o *decider.CacheAwareOptions) (decider.Policy, error) {
		return decider.NewCacheAware(*o)
	}),
	policy("prefix_cache", decider.PrefixCacheDefaults, func(o *decider.PrefixCacheOptions) (decider.Policy, error) {
		return decider.NewPrefixCache(*o)
	}),
	policy("kv_cost", decider.KVCostDefaults, func(o *decider.KVCostOptions) (decider.Policy, error) {
		return decider.NewKVCost(*o)
	}),
	policy("weighted", decider.WeightedDefaults, func(o *decider.WeightedOptions) (decider.Policy, error) {
		return decider.NewWeighted(*o)
	}),
	policy("expression", decider.ExpressionOptions{}, func(o *decider.ExpressionOptions) (decider.Policy, error) {
		return decider.NewExpression(*o)
	}),
	policy("throughput_aware", none, func(*struct{}) (decider.Policy, error) { return decider.ThroughputAware{}, nil }),
}

// none are the options of a policy without any.
var none struct{}

// policyEntry makes one policy from the options in the configuration. The key
// it returns is equal for policies of equal options.
type policyEntry struct {
	name string
	make func(*config.Policy) (p decider.Policy, key string, err error)
}

// policy returns the entry of a policy whose options are an O, with their
// defaults. An error of build that begins with an option's name and a colon
// is told at that option.
func policy[O any](name string, defaults O, build func(*O) (decider.Policy, error)) policyEntry {
	return policyEntry{name, func(c *config.Policy) (decider.Policy, string, error) {
		options := defaults
		if err := c.Decode(&options); err != nil {
			return nil, "", err
		}
		key := fmt.Sprintf("%s %+v", name, options)
		p, err := build(&options)
		if err != nil {
			if option, what, ok := strings.Cut(err.Error(), ": "); ok {
				err = c.Refuse(option, "%s", what)
			}
		}
		return p, key, err
	}}
}

func policyNames() []string {
	names := make([]string, len(policies))
	for i, e := range policies {
		names[i] = e.name
	}
	return names
}

func newPolicy(c *config.Policy) (p decider.Policy, key string, err error) {
	for _, e := range policies {
		if e.name == c.Name {
			return e.make(c)
		}
	}
	return nil, "", errors.New("unknown policy " + c.Name)
}
