package decider

// nearest keeps the replicas on the agent's own node, or, while there are none
// or they are too loaded, those in its zone, as Ray's locality ranks.
func (p *Pool) nearest(_ *Request, v *View, dst []int) []int {
	start := len(dst)
	for tier := 2; tier > 0; tier-- {
		dst = p.pick(v, dst, func(c *Replica) bool { return c.near >= tier })
		if len(dst) > start {
			break
		}
	}
	return dst
}

// nearness is how near a replica is to the agent; see Replica.Near.
func (f *Filters) nearness(r *Replica) int {
	switch {
	case f.Node != "" && r.node == f.Node:
		return 2
	case f.Zone != "" && r.zone == f.Zone:
		return 1
	}
	return 0
}
