package agent

import (
	"pointsman/engine"
	"pointsman/engine/metrics"
	"pointsman/resolve"
)

// engineOptions describe the engines of each pool.
func engineOptions(c *resolve.Config) map[string]engine.PoolOptions {
	options := map[string]engine.PoolOptions{}
	for _, p := range c.Pools {
		o := engine.PoolOptions{
			Kind: metrics.KindOf(p.Engine), Metrics: p.Metrics, Events: engine.EventOptions(p.KVEvents),
			Replicas: map[string]engine.EventOptions{}, Ranks: map[string]metrics.Rank{},
		}
		for _, r := range p.Ranked() {
			if r.KVEvents.Port > 0 {
				o.Replicas[r.Name] = engine.EventOptions(r.KVEvents)
			}
			if r.Rank > 0 {
				o.Ranks[r.Name] = metrics.Rank{Number: r.Rank - 1, Of: p.DataParallel}
			}
		}
		options[p.Name] = o
	}
	return options
}
