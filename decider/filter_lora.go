package decider

// withAdapter keeps the replicas that have the adapter of r, and while they are
// too loaded, or none has it, those with the fewest adapters: one of them will
// load it, and have it from then on. These are the ranks of Ray's multiplexing.
func (p *Pool) withAdapter(r *Request, v *View, dst []int) []int {
	if r.LoRA == "" {
		return dst
	}
	start := len(dst)
	dst = p.pick(v, dst, func(c *Replica) bool { return c.HasLoRA(r.LoRA) })
	if len(dst) > start {
		return dst
	}
	fewest := -1
	for _, i := range v.Candidates {
		if n := v.Replicas[i].LoRAs(); fewest < 0 || n < fewest {
			fewest = n
		}
	}
	return p.pick(v, dst, func(c *Replica) bool { return c.LoRAs() == fewest })
}
