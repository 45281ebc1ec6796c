package workload

import "time"

// longAmongChat is chat in which one request of fifty has a prompt of 100,000 to
// 180,000 tokens that no other shares.
func longAmongChat(g *generator) {
	apps := g.newTexts(12, 200, 1500)
	g.poisson(1200, 900*time.Millisecond, func(at time.Duration) {
		g.conversation(apps, at)
		if g.random.Float64() < 0.082 {
			g.ask(at+g.after(time.Minute), g.newText(g.between(100_000, 180_000)), g.around(500, 0.6, 50, 2000), g.session(), false)
		}
	})
}
