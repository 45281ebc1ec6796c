package main

import (
	"fmt"
	"os"
	"slices"

	"pointsman/config"
	"pointsman/sim/replay"
	"pointsman/sim/trace"
)

// defaults are what the flags say, and else the recording or the documentation.
type defaults struct {
	replicas, cacheTokens int
	load, rate            float64
	policies              []string
	baseline              string
}

const (
	defaultReplicas    = 8
	defaultCacheTokens = 500_000
	defaultLoad        = 0.85
	defaultBaseline    = "round_robin"
)

// candidates are the policies that a recording is replayed with, besides the one
// that ran: those that need nothing but requests, and one bound.
var candidates = []string{"round_robin", "least_requests", "session", "prefix_affinity", "least_work", "least_work_late", replay.LowerBound}

func (c *simulateCmd) defaults(t *trace.Trace) defaults {
	d := defaults{
		replicas: defaultReplicas, cacheTokens: defaultCacheTokens, load: defaultLoad, rate: c.Rate,
		policies: c.Policy, baseline: c.Baseline,
	}
	r := t.Recorded
	if r != nil && r.Replicas > 0 {
		d.replicas = r.Replicas
	}
	if r != nil && r.CacheTokens > 0 {
		d.cacheTokens = r.CacheTokens
	}
	if c.Replicas != nil {
		d.replicas = *c.Replicas
	}
	if c.CacheTokens != nil {
		d.cacheTokens = *c.CacheTokens
	}
	if c.Load != nil {
		d.load = *c.Load
	} else if d.rate == 0 && c.Trace != "" && len(t.Requests) > 0 {
		d.rate = t.Rate()
	}
	ran := ""
	if r != nil && !r.Shadow && r.Policy != "" {
		// It may be one of another version or build, and old recordings lack the options.
		if _, err := replay.ParsePolicies(policies, []string{r.Policy}); err == nil {
			ran = r.Policy
		} else if c.Policy == nil || c.Baseline == "" {
			fmt.Fprintf(os.Stderr, "The policy that was recorded cannot be replayed: give one with --policy and --baseline. (%v)\n", err)
		}
	}
	if d.baseline == "" {
		if d.baseline = defaultBaseline; ran != "" {
			d.baseline = ran
		}
	}
	switch {
	case d.policies != nil:
	case r == nil:
		d.policies = []string{config.DefaultPolicy}
	default:
		d.policies = slices.Clone(candidates)
		if ran != "" && !slices.Contains(d.policies, ran) {
			d.policies = slices.Insert(d.policies, 0, ran)
		}
	}
	return d
}
