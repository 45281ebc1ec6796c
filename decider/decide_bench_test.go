package decider_test

import (
	"fmt"
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
	"pointsman/decider/policy"
)

// BenchmarkDecide measures choosing, reserving and ending.
func BenchmarkDecide(b *testing.B) {
	policies := []struct {
		name string
		make func() decider.Policy
	}{
		{"round_robin", func() decider.Policy { return &policy.RoundRobin{} }},
		{"power_of_two", func() decider.Policy { return policy.PowerOfTwo{} }},
		{"least_requests", func() decider.Policy { return policy.LeastRequests{} }},
		{"least_work", func() decider.Policy { return policy.LeastWork{} }},
		{"session", func() decider.Policy {
			p, err := policy.NewSession(policy.SessionDefaults)
			if err != nil {
				b.Fatal(err)
			}
			return p
		}},
	}
	for _, pc := range policies {
		for _, n := range []int{8, 64, 512, 4096} {
			b.Run(fmt.Sprintf("%s/replicas=%d", pc.name, n), func(b *testing.B) {
				r := decider.Request{Pool: decidertest.New(pc.make(), n).Pool, Input: 1000, HasSession: true}
				var d decider.Decision
				b.ReportAllocs()
				for i := range b.N {
					r.Session = decidertest.Key(uint64(i))
					r.ID = decider.ID{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}
					r.Pool.Decide(&r, &d)
					r.Pool.Finished(decider.Outcome{ID: r.ID})
				}
			})
		}
	}
}
