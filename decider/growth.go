package decider

import "time"

// growth estimates how many output tokens running requests have generated in the mean. On
// average they have as many still to come, whatever the lengths of answers are. It lives
// under the pool's lock.
type growth struct {
	generated float64
	at        time.Duration // when it was worked out; 0 = never
}

// growthEvery is how often it is recomputed.
const growthEvery = 100 * time.Millisecond

// perRequest is the mean over the replicas whose engines report the use of their cache,
// 0 if none does. KV cache in use beyond the prompts is output.
func (g *growth) perRequest(m *members, now time.Duration) float64 {
	if g.at > 0 && now-g.at < growthEvery {
		return g.generated
	}
	tokens, requests := 0.0, 0
	for _, i := range m.open {
		r := m.replicas[i]
		if s := &r.signals; s.Known && now-s.At < signalsKept {
			tokens += max(0, min(1, s.KVUsage)-r.atSignals.usage) * float64(r.CacheTokens())
			requests += max(0, s.Running)
		}
	}
	g.generated, g.at = tokens/float64(max(requests, 1)), max(now, 1)
	return g.generated
}
