package workload

import "time"

// heavyTail is unrelated requests of very different lengths: prompts of 1,200
// tokens in the median and up to 180,000, answers of 200 in the median.
func heavyTail(g *generator) {
	g.poisson(5000, 300*time.Millisecond, func(at time.Duration) {
		g.ask(at, g.newText(g.around(1200, 1.7, 100, 180_000)), g.around(200, 1.1, 5, 6000), g.session(), false)
	})
}
