package demo

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bytedance/sonic"
)

// agentClient is how one kind of coding agent speaks.
type agentClient struct {
	path, header string // of its API, and the header with its session
	body         func(session string, output int, system string, talk []message) map[string]any
}

var agentClients = [...]agentClient{
	{"/v1/messages", "X-Claude-Code-Session-Id", func(_ string, output int, system string, talk []message) map[string]any {
		return map[string]any{"max_tokens": output, "system": system, "messages": talk}
	}},
	{"/v1/responses", "Session-Id", func(session string, output int, system string, talk []message) map[string]any {
		return map[string]any{"max_output_tokens": output, "instructions": system, "input": talk, "prompt_cache_key": session}
	}},
	{"/v1/chat/completions", "X-Session-Affinity", func(_ string, output int, system string, talk []message) map[string]any {
		return map[string]any{"max_tokens": output, "messages": append([]message{{"system", system}}, talk...)}
	}},
}

// The shape of an agent's session, in words and turns; of what is known of real ones a
// tenth in length, as the demo's caches are small.
const (
	agentSystemWords = 1500 // of each kind of client
	agentTurnsLeast  = 6
	agentTurnsMore   = 10
	agentWordsMost   = 250
	subAgentShare    = 0.44 // of the sessions
	subAgentTurns    = 4
	agentPause       = 2 * time.Second // mean, before the workload is brought to its rate
)

// newAgents makes n requests of coding agents: long conversations of many turns with
// little output, each kind of client with its own long system prompt and its own API.
// Some start a sub-agent, which goes on from the conversation so far in a session of its
// own.
func newAgents(seed uint64, n int) ([]call, error) {
	chance := rand.New(rand.NewPCG(seed, 1))
	var system [len(agentClients)]string
	for i := range system {
		system[i] = words(chance, agentSystemWords)
	}
	var calls []call
	start := time.Duration(0)
	for session := 0; len(calls) < n+n/2; session++ {
		start += time.Duration(chance.ExpFloat64() * float64(agentPause))
		kind := session % len(agentClients)
		a := agentSession{client: &agentClients[kind], chance: chance, system: system[kind], name: fmt.Sprintf("agent-%d", session)}
		turns := agentTurnsLeast + chance.IntN(agentTurnsMore)
		sub := -1
		if chance.Float64() < subAgentShare {
			sub = 1 + chance.IntN(turns-1)
		}
		own, err := a.turns(start, turns, sub)
		if err != nil {
			return nil, err
		}
		calls = append(calls, own...)
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	calls = calls[:n]
	first := calls[0].at
	for i := range calls {
		calls[i].at -= first
	}
	return calls, nil
}

// agentSession is one session as it grows.
type agentSession struct {
	client       *agentClient
	chance       *rand.Rand
	system, name string
	talk         []message
}

// turns makes the requests of so many turns from at on. At the turn sub a sub-agent
// starts; -1 = none does.
func (a *agentSession) turns(at time.Duration, turns, sub int) (calls []call, err error) {
	for turn := range turns {
		if turn == sub {
			other := *a
			other.name, other.talk = a.name+"-sub", slices.Clone(a.talk)
			theirs, err := other.turns(at, subAgentTurns, -1)
			if err != nil {
				return nil, err
			}
			calls = append(calls, theirs...)
		}
		a.talk = append(a.talk, message{"user", words(a.chance, 20+a.chance.IntN(agentWordsMost))})
		c := call{at: at, path: a.client.path, session: a.name, header: a.client.header, output: 8 + a.chance.IntN(24), stream: true}
		body := a.client.body(a.name, c.output, a.system, a.talk)
		body["model"], body["stream"], body["ignore_eos"] = "demo", true, true
		if c.body, err = sonic.ConfigStd.Marshal(body); err != nil {
			return nil, err
		}
		calls = append(calls, c)
		a.talk = append(a.talk, message{"assistant", words(a.chance, c.output)})
		at += time.Duration(a.chance.ExpFloat64() * float64(agentPause))
	}
	return calls, nil
}
