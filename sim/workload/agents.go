package workload

import "time"

const (
	// agentContext is the context window of an agent, less its reserve: at this
	// length it replaces the later part of its history by a summary.
	agentContext = 190_000
	// agentTurns is the median number of turns in a session.
	agentTurns = 43
	// agentsWithHelpers is the share of sessions that start sub-agents.
	agentsWithHelpers = 0.44
)

// agents is the traffic of coding agents as measured in the field: in the median
// 142,000 tokens in, 444 out and 43 turns per session, more than 96 % of the
// prompt tokens seen before, and sub-agents in 44 % of the sessions. A sub-agent
// has a context of its own and its parent's session.
func agents(g *generator) {
	tools := g.newTexts(4, 18_000, 30_000)
	g.poisson(130, 22*time.Second, func(at time.Duration) {
		t := tools[g.popular(len(tools), 1)].clone()
		t.extend(g.around(56_000, 0.25, 20_000, 110_000)) // the task, and files read before
		a := agent{g, t, g.session(), 2500}
		helpers := 0
		if g.random.Float64() < agentsWithHelpers {
			helpers = g.between(1, 3)
		}
		turns := g.around(agentTurns, 0.5, 6, 200)
		for turn := range turns {
			if helpers > 0 && turn == turns/4 {
				a.help(tools, at, helpers)
				at += time.Minute
			}
			a.turn(at)
			at += 4*time.Second + g.after(12*time.Second)
		}
	})
}

// agent is one agent or sub-agent.
type agent struct {
	g       *generator
	text    *text
	session uint64
	growth  float64 // median number of tokens that a turn adds
}

// turn adds the request of one turn.
func (a *agent) turn(at time.Duration) {
	if a.text.tokens > agentContext-2000 {
		a.text = a.text.fork(125_000)
		a.text.extend(a.g.between(3000, 6000))
	}
	a.text.extend(min(a.g.around(a.growth, 0.8, 100, 25_000), agentContext-a.text.tokens))
	a.g.ask(at, a.text, a.g.around(444, 0.9, 20, 4000), a.session, true)
}

// help adds n sub-agents that work at the same time.
func (a *agent) help(tools []*text, at time.Duration, n int) {
	for range n {
		t := tools[len(tools)-1].clone()
		t.extend(a.g.between(1000, 4000))
		h := agent{a.g, t, a.session, 2000}
		for at, turn := at, 0; turn < a.g.between(3, 8); turn++ {
			h.turn(at)
			at += 2*time.Second + a.g.after(6*time.Second)
		}
	}
}
