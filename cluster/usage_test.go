package cluster

import (
	"testing"
	"time"

	"pointsman/decider/budget"
)

// Agents that share refuse what a client has used at another one.
func TestBudgetsAreShared(t *testing.T) {
	net := &testNet{now: time.Second}
	var nodes []*Node
	for _, name := range []string{"a", "b"} {
		n := newTestNode(net, name, "secret")
		n.Decider.Budgets = budget.New(net.clock, []byte("what both have"))
		n.Decider.Budgets.Apply(budget.Config{Limits: []budget.Limit{{Name: "a-key", By: budget.ByKey, PerMinute: 1000}}})
		nodes = append(nodes, n)
	}
	charge := func(n *Node, tokens int) budget.Verdict {
		b := n.Decider.Budgets
		_, v := b.Charge(b.Identify([]byte("sk-alice")), "m", tokens, false)
		return v
	}
	if v := charge(nodes[0], 900); v.Refused {
		t.Fatalf("%+v", v)
	}
	pass := func(d time.Duration) {
		for range d / tickEvery {
			net.pass(tickEvery)
			for _, n := range nodes {
				n.tick()
			}
			net.deliver()
		}
	}
	pass(time.Second)
	if v := charge(nodes[1], 200); !v.Refused || v.Remaining != 100 {
		t.Errorf("%+v", v)
	}
	(*nodes[0].bus.Load()).Close()
	pass(time.Minute)
	net.pass(5 * time.Second)
	if v := charge(nodes[1], 1000); v.Refused {
		t.Errorf("what was used a minute ago counts: %+v", v)
	}
}
