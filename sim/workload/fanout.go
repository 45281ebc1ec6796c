package workload

import "time"

// fanOut is the traffic of programs that split a task: 4 to 32 requests come at
// once, with one context of 2,000 to 16,000 tokens and 50 to 400 tokens each of
// their own.
func fanOut(g *generator) {
	g.poisson(330, 3*time.Second, func(at time.Duration) {
		context, session := g.newText(g.between(2000, 16_000)), g.session()
		for range g.between(4, 32) {
			t := context.clone()
			t.extend(g.between(50, 400))
			g.ask(at+time.Duration(g.between(0, 50))*time.Millisecond, t, g.around(150, 0.7, 5, 1000), session, false)
		}
	})
}
