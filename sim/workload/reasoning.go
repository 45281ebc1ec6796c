package workload

import "time"

// reasoning is traffic of a reasoning model: 700 tokens in and 2,500 out on
// average, of which 200 are a system prompt. What the model thought is not part
// of any later prompt.
func reasoning(g *generator) {
	system := g.newText(200)
	g.poisson(16_000, 60*time.Millisecond, func(at time.Duration) {
		t := system.clone()
		t.extend(g.around(330, 0.9, 10, 8000))
		g.ask(at, t, g.around(1700, 0.9, 100, 16_000), g.session(), false)
	})
}
