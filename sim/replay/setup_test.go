package replay

import (
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/sim"
	"pointsman/sim/trace"
)

func roundRobin() (decider.Policy, error) { return &policy.RoundRobin{}, nil }

func leastRequests() (decider.Policy, error) { return policy.LeastRequests{}, nil }

// smallTrace returns n requests, some of which share prefixes.
func smallTrace(n int) *trace.Trace {
	t := &trace.Trace{BlockTokens: 64}
	for i := range n {
		c := trace.Request{At: time.Duration(i) * 200 * time.Millisecond, Input: 64 + i*37%900, Output: 1 + i*13%60, HasSession: i%3 > 0, Stream: i%4 > 0, Session: uint64(i % 7)}
		for k := range c.Input / t.BlockTokens {
			c.Blocks = append(c.Blocks, trace.Hash(uint64(k*100+i%(1+3*k))))
		}
		c.Visible, c.Estimate = c.Blocks, c.Input
		t.Requests = append(t.Requests, c)
	}
	return t
}

func smallOptions() Options {
	return Options{
		Setup: Setup{Replicas: 4, Profile: sim.Profile8B, CacheTokens: 4096},
		Rate:  40, Seed: 1, Policy: leastRequests, PolicyName: "least_requests",
	}
}

// published is the setup of a published policy comparison.
var published = Setup{Replicas: 8, Profile: sim.Profile70B, CacheTokens: 500_000}

// skipIfShort leaves a long replay, which runs in one goroutine, out of -short:
// the race detector has nothing to find in it and takes minutes.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long replay")
	}
}
