package workload

import "time"

// sharedPrefix is the traffic of three applications with system prompts of
// 8,000, 12,000 and 16,000 tokens, and requests of a few hundred tokens below
// them. The first one has most of the requests.
func sharedPrefix(g *generator) {
	apps := []*text{g.newText(8000), g.newText(12_000), g.newText(16_000)}
	g.poisson(6000, 100*time.Millisecond, func(at time.Duration) {
		t := apps[g.popular(len(apps), 1)].clone()
		t.extend(g.around(300, 0.8, 10, 4000))
		g.ask(at, t, g.around(150, 0.7, 5, 1000), g.session(), false)
	})
}
