package workload

import "time"

// bursts is chat in which half of the conversations begin in bursts: 12 within
// two seconds, once in ten seconds on average.
func bursts(g *generator) {
	apps := g.newTexts(12, 200, 1500)
	g.poisson(84, 10*time.Second, func(at time.Duration) {
		for range 12 {
			g.conversation(apps, at+time.Duration(g.between(0, 2000))*time.Millisecond)
		}
	})
	g.poisson(1000, 840*time.Millisecond, func(at time.Duration) { g.conversation(apps, at) })
}
