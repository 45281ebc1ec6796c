package decider_test

import (
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
	"pointsman/decider/policy"
)

// Ranks are replicas of their own; the decision says which of them, and a refused
// connection says something of all ranks of the engine.
func TestRanks(t *testing.T) {
	p := decidertest.New(&policy.RoundRobin{}, 3, func(c *decider.PoolConfig) {
		for i := range c.Replicas[:2] {
			c.Replicas[i].Address, c.Replicas[i].Rank = "10.0.0.1:8000", i+1
		}
	})
	want := map[string]string{"r0": "0", "r1": "1", "r2": ""}
	for range 6 {
		if d, _ := p.Send(); d.Rank != want[d.Server] {
			t.Errorf("%s: rank %q, want %q", d.Server, d.Rank, want[d.Server])
		}
	}
	var d decider.Decision
	var id decider.ID
	for d.Server != "r0" {
		d, id = p.Send()
	}
	p.Finished(decider.Outcome{ID: id, Server: []byte("r0"), End: decider.Refused})
	for name, state := range map[string]string{"r0": "ejected", "r1": "ejected", "r2": "up"} {
		if got := p.Replica(name).State; got != state {
			t.Errorf("%s is %s, want %s", name, got, state)
		}
	}
	if p.Replica("r1").Failed != 0 {
		t.Error("a rank is blamed for the failure of another")
	}
}
