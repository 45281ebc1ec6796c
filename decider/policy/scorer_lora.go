package policy

import "pointsman/decider"

// LoRAScorer is 1 where the request's adapter is loaded, 0.8 where a slot is free
// for it, 0.6 where it is being loaded, and 0 elsewhere, as in llm-d. It has no
// opinion on a request for the model itself.
type LoRAScorer struct{}

// Score implements Scorer.
func (LoRAScorer) Score(r *decider.Request, v *decider.View, out []float64) {
	if r.LoRA == "" {
		noOpinion(out)
		return
	}
	for c, i := range v.Candidates {
		replica := v.Replicas[i]
		switch state := replica.LoRA(r.LoRA); {
		case state == decider.LoRALoaded:
			out[c] = 1
		case state == decider.LoRALoading:
			out[c] = 0.6
		case replica.LoRAs() < replica.LoRASlots():
			out[c] = 0.8
		default:
			out[c] = 0
		}
	}
}

var _ decider.Scorer = LoRAScorer{}
