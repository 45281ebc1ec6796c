package workload

import "time"

// chat is the traffic of a chat service: 12 applications with system prompts of
// 200 to 1,500 tokens, conversations of four turns on average, questions of 60
// tokens and answers of 250 in the median, half a minute between turns.
func chat(g *generator) {
	apps := g.newTexts(12, 200, 1500)
	g.poisson(2000, 700*time.Millisecond, func(at time.Duration) { g.conversation(apps, at) })
}

// conversation adds the turns of one conversation that begins at time at.
func (g *generator) conversation(apps []*text, at time.Duration) {
	t, session := apps[g.popular(len(apps), 1)].clone(), g.session()
	for more := true; more && t.tokens < 30_000; more = g.random.Float64() < 0.75 {
		t.extend(g.around(60, 1.2, 5, 8000))
		g.ask(at, t, g.around(250, 0.8, 5, 2000), session, true)
		at += 5*time.Second + g.after(25*time.Second)
	}
}
