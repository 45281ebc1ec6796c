package workload

import "time"

// embeddings is the traffic of an index: texts of 300 tokens in the median that
// share nothing, one every 10 ms on average. The answer is not streamed.
func embeddings(g *generator) {
	g.poisson(8000, 10*time.Millisecond, func(at time.Duration) {
		g.ask(at, g.newText(g.around(300, 0.8, 10, 8000)), 1, 0, false)
		g.requests[len(g.requests)-1].Stream = false
	})
}
