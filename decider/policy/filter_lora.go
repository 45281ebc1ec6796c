package policy

import "pointsman/decider"

// LoRAAffinity keeps the replicas that have the request's adapter. While they are
// overloaded, or none has it, it keeps those with the fewest adapters: one of
// them will load it and have it from then on. These are the ranks of Ray's
// multiplexing.
type LoRAAffinity struct{}

// Name implements Filter.
func (LoRAAffinity) Name() string { return "lora_affinity" }

// Keep implements Filter.
func (LoRAAffinity) Keep(r *decider.Request, v *decider.View, dst []int) []int {
	if r.LoRA == "" {
		return dst
	}
	start := len(dst)
	dst = v.Keep(dst, func(c *decider.Replica) bool { return c.HasLoRA(r.LoRA) })
	if len(dst) > start {
		return dst
	}
	fewest := v.Replicas[v.Candidates[0]].LoRAs()
	for _, i := range v.Candidates {
		fewest = min(fewest, v.Replicas[i].LoRAs())
	}
	return v.Keep(dst, func(c *decider.Replica) bool { return c.LoRAs() == fewest })
}

var _ decider.Filter = LoRAAffinity{}
