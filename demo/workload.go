package demo

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/sim/trace"
)

// call is one request of the demo's workload.
type call struct {
	at      time.Duration // since the first one
	path    string
	session string
	header  string // of the session; "" = X-Session-ID
	body    []byte
	output  int // tokens of the answer
	stream  bool
	band    string // in the scenario of priorities
}

// message is a message of a conversation in OpenAI's form.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

const (
	systemPrompts = 6
	systemWords   = 900
	turnsAtMost   = 6
	turnPause     = 4 * time.Second // mean, before the workload is brought to its rate
)

// newWorkload makes n requests: conversations that begin by chance and grow
// turn by turn, streamed and plain, with completions and embeddings between
// them. A few long system prompts are shared by many conversations.
func newWorkload(seed uint64, n int) ([]call, error) {
	var calls []call
	chance := rand.New(rand.NewPCG(seed, 0))
	var system [systemPrompts]string
	for i := range system {
		system[i] = words(chance, systemWords)
	}
	for start, talk := time.Duration(0), 0; len(calls) < n+n/2; talk++ {
		start += time.Duration(chance.ExpFloat64() * float64(time.Second))
		turns, err := conversation(chance, start, fmt.Sprintf("demo-%d", talk), system[chance.IntN(systemPrompts)])
		if err != nil {
			return nil, err
		}
		calls = append(calls, turns...)
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	calls = calls[:n] // the last conversations are still going on
	first := calls[0].at
	for i := range calls {
		calls[i].at -= first
	}
	return calls, nil
}

// conversation makes the requests of one conversation. The turns do not wait
// for the answers: all policies meet the same workload.
func conversation(chance *rand.Rand, at time.Duration, session, system string) ([]call, error) {
	var calls []call
	talk := []message{{"system", system}}
	for range 1 + chance.IntN(turnsAtMost) {
		c := call{
			at: at, path: "/v1/chat/completions", session: session,
			output: 8 + chance.IntN(56), stream: chance.IntN(10) < 7,
		}
		body := map[string]any{"model": "demo", "max_tokens": c.output, "ignore_eos": true, "stream": c.stream}
		switch chance.IntN(16) {
		case 0:
			c.path, body["prompt"] = "/v1/completions", words(chance, 120)
		case 1:
			c.path, c.output, c.stream = "/v1/embeddings", 1, false
			body = map[string]any{"model": "demo", "input": words(chance, 60)}
		default:
			talk = append(talk, message{"user", words(chance, 20+chance.IntN(300))})
			body["messages"] = talk
			talk = append(talk, message{"assistant", words(chance, c.output)})
		}
		var err error
		if c.body, err = sonic.ConfigStd.Marshal(body); err != nil {
			return nil, err
		}
		calls = append(calls, c)
		at += time.Duration(chance.ExpFloat64() * float64(turnPause))
	}
	return calls, nil
}

// words makes n words of text.
func words(chance *rand.Rand, n int) string {
	const syllables = "ba be bi bo bu da de di do du ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu ra re ri ro ru"
	list := strings.Fields(syllables)
	var b strings.Builder
	for range n {
		for range 1 + chance.IntN(3) {
			b.WriteString(list[chance.IntN(len(list))])
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// traceOf is the workload as the simulator reads it.
func traceOf(calls []call) (*trace.Trace, error) {
	var lines bytes.Buffer
	for _, c := range calls {
		line, err := sonic.Marshal(map[string]any{
			"timestamp": float64(c.at) / float64(time.Millisecond), "path": c.path, "session": c.session,
			"body": sonic.NoCopyRawMessage(c.body), "output_tokens": c.output,
		})
		if err != nil {
			return nil, err
		}
		lines.Write(append(line, '\n'))
	}
	return trace.Read(&lines, trace.Options{})
}

// pace brings the workload to a mean of rate requests/s.
func pace(calls []call, rate float64) {
	span := calls[len(calls)-1].at
	if span == 0 {
		return
	}
	factor := float64(len(calls)) / rate / span.Seconds()
	for i := range calls {
		calls[i].at = time.Duration(float64(calls[i].at) * factor)
	}
}
