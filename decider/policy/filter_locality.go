package policy

import "pointsman/decider"

// Locality keeps the replicas on the agent's own node. While there are none, or
// they are overloaded, it keeps those in the agent's zone, as Ray does.
type Locality struct{}

// Name implements Filter.
func (Locality) Name() string { return "locality" }

// Keep implements Filter.
func (Locality) Keep(_ *decider.Request, v *decider.View, dst []int) []int {
	start := len(dst)
	for near := 2; near > 0 && len(dst) == start; near-- {
		dst = v.Keep(dst, func(c *decider.Replica) bool { return c.Near() >= near })
	}
	return dst
}

var _ decider.Filter = Locality{}
