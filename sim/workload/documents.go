package workload

import "time"

// documents is retrieval over 400 documents of 2,000 to 60,000 tokens, 10,000 in
// the median. Each user asks one to three questions about one of them, and a few
// documents are asked about most.
func documents(g *generator) {
	system := g.newText(600)
	library := make([]*text, 400)
	for i := range library {
		library[i] = system.clone()
		library[i].extend(g.around(10_000, 0.7, 2000, 60_000))
	}
	g.poisson(2000, time.Second, func(at time.Duration) {
		t, session := library[g.popular(len(library), 0.9)].clone(), g.session()
		for range g.between(1, 3) {
			t.extend(g.between(20, 200))
			g.ask(at, t, g.around(200, 0.7, 10, 1500), session, true)
			at += 5*time.Second + g.after(30*time.Second)
		}
	})
}
