package engines

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"pointsman/test/rig"
)

// turn is a request of a conversation, whose prompt is the last one's and more.
type turn struct {
	talk   int
	model  string
	fields string // of the body
	agent  string // begins the system prompt
	text   []string
}

// vocabulary of the conversations.
var vocabulary = strings.Fields("the a proxy agent replica request decision of to in with waits holds serves its cache block token prompt answer when where each one two list file line test error returns func type struct string int for range if else")

// talks makes conversations as agents have them: each turn repeats the last and adds a
// message of about the given number of words. Their turns alternate.
func talks(n, turns, words int) (list []turn) {
	r := rand.New(rand.NewPCG(uint64(n), uint64(turns)))
	texts := make([][]string, n)
	for k := range turns {
		for talk := range n {
			var b strings.Builder
			fmt.Fprintf(&b, "conversation %d, turn %d:", talk, k)
			for range words/2 + r.IntN(words) {
				b.WriteString(" " + vocabulary[r.IntN(len(vocabulary))])
			}
			texts[talk] = append(texts[talk], b.String())
			list = append(list, turn{talk: talk, model: rig.Model, text: texts[talk][:len(texts[talk]):len(texts[talk])]})
		}
	}
	return list
}

// body is the body of the request.
func (u turn) body() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"model":%q,"max_tokens":2,"ignore_eos":true,%s"messages":[{"role":"system","content":"%sYou are an agent."}`, u.model, u.fields, u.agent)
	for k, text := range u.text {
		if k > 0 {
			b.WriteString(`,{"role":"assistant","content":"ok"}`)
		}
		fmt.Fprintf(&b, `,{"role":"user","content":%q}`, text)
	}
	b.WriteString("]}")
	return []byte(b.String())
}

// workload sends requests one after the other, and compares what the agent believed of
// each with what the engine reports.
type workload struct {
	site      *rig.Site
	client    *http.Client
	block     int
	predicted bool // the agent has the engines' events

	requests, exact, prefix, late, within, prompt, cached int
	misses                                                []string
}

func (w *workload) run(t *testing.T, turns []turn) {
	t.Helper()
	count := newCounted(w.site)
	for _, u := range turns {
		a := usageOf(t, rig.Call{Body: u.body()}.Do(w.client, w.site.Front))
		got := count.next(t)
		w.requests++
		w.prompt += a.Prompt
		w.cached += a.Details.Cached
		miss := func(format string, args ...any) {
			w.misses = append(w.misses, fmt.Sprintf("conversation %d, turn %d of %s %s: ", u.talk, len(u.text), u.model, u.fields)+fmt.Sprintf(format, args...))
		}
		switch {
		case got.late:
			w.late++
		case got.prefix:
			w.prefix++
		case !got.exact || got.tokens != a.Prompt:
			miss("the agent has %+v, the engine %d tokens", got, a.Prompt)
		default:
			w.exact++
		}
		if off := got.cached - a.Details.Cached; off >= -w.block && off <= w.block {
			w.within++
		} else if w.predicted {
			miss("of %d tokens %d were believed cached, and %d were (%+v)", a.Prompt, got.cached, a.Details.Cached, got)
		}
	}
}

// judge checks what run has counted.
func (w *workload) judge(t *testing.T) {
	t.Helper()
	if w.exact+w.prefix+w.late != w.requests {
		t.Errorf("the tokens of %d requests were counted wrongly", w.requests-w.exact-w.prefix-w.late)
	}
	if w.predicted && w.within*100 < w.requests*99 {
		t.Errorf("cached tokens of %d of %d requests were predicted within a block", w.within, w.requests)
	}
	t.Logf("%d requests; tokens: %d exact, %d of the turn before, %d too late; %d predicted within a block; %d of %d prompt tokens were cached",
		w.requests, w.exact, w.prefix, w.late, w.within, w.cached, w.prompt)
	for _, m := range w.misses {
		t.Log(m)
	}
}
