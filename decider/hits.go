package decider

import (
	"math"
	"time"
)

// hitMemory is after how long a prompt counts for 1/e in the hit ratios.
const hitMemory = 5 * time.Minute

// hitStep is how often the sums decay. Prompts of the same step count alike.
const hitStep = 100 * time.Millisecond

// hitRatio is the share of the prompts of the last minutes that was believed cached: on
// the replicas chosen, and on any replica.
type hitRatio struct {
	prompt, cached, achievable float64 // tokens, decayed until at
	at                         time.Duration
}

// add counts a prompt whose replica has cached tokens of it, and the best one
// achievable.
func (h *hitRatio) add(prompt, cached, achievable int, now time.Duration) {
	if now-h.at >= hitStep {
		keep := math.Exp(-float64(now-h.at) / float64(hitMemory))
		h.prompt, h.cached, h.achievable = h.prompt*keep, h.cached*keep, h.achievable*keep
		h.at = now
	}
	h.prompt += float64(prompt)
	h.cached += float64(cached)
	h.achievable += float64(achievable)
}

// HitRatio is the shares of the prompt tokens of about the last five minutes, 0 to 1,
// that were believed to be in KV caches.
type HitRatio struct {
	Expected   float64 `json:"expected"`   // of the replicas chosen
	Achievable float64 `json:"achievable"` // of any replica
}

// ratio returns nil before the first prompt, and when the last is long ago.
func (h *hitRatio) ratio(now time.Duration) *HitRatio {
	if h.prompt == 0 || now-h.at > 2*hitMemory {
		return nil
	}
	return &HitRatio{Expected: h.cached / h.prompt, Achievable: h.achievable / h.prompt}
}
