package tokenize

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pointsman/decider"
	"pointsman/sim/fakevllm"
)

// fail has the engine of b answer a path with a status.
func (b *bench) fail(path string, status int) {
	b.engine.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/fake/fail", strings.NewReader(fmt.Sprintf(`{"path":%q,"status":%d}`, path, status))))
}

// inputTokens returns how many tokens the engine of b counts for a request of either API
// of agents.
func (b *bench) inputTokens(path, body string) int { return b.counted(path, body, "input_tokens") }

var long = strings.Repeat("plain words ", 40)

// agentBodies are bodies of both APIs with what coding agents send.
func agentBodies() map[string][]string {
	schema := `{"type":"object","properties":{"path":{"type":"string"}}}`
	calls := `{"role":"user","content":"read it"},
		{"role":"assistant","content":[{"type":"thinking","thinking":"I look","signature":"x"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"Reading."},{"type":"tool_use","id":"t1","name":"read","input":{"path": "a.go"}},{"type":"tool_use","id":"t2","name":"list"}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"package a"},{"type":"text","text":"end"}]},{"type":"tool_result","tool_use_id":"t2","content":"none"},{"type":"text","text":"go on"}]}`
	claude := `"system":[{"type":"text","text":"x-anthropic-billing-header: cch=abcde;"},{"type":"text","text":"` + long + `"},{"type":"text","text":" and briefly"}]`
	items := `{"type":"message","role":"developer","content":[{"type":"input_text","text":"` + long + `"}]},{"role":"user","content":"read it"},
		{"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"I look"}]},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Reading."}]},
		{"type":"function_call","call_id":"c1","name":"read","arguments":"{\"path\":\"a.go\"}"},
		{"type":"function_call","call_id":"c2","name":"list","arguments":"{}"},
		{"type":"function_call_output","call_id":"c1","output":"package a"},{"type":"function_call_output","call_id":"c2","output":"none"},{"role":"user","content":[{"type":"input_text","text":"go on"}]}`
	return map[string][]string{
		messages: {
			`"messages":[{"role":"user","content":"` + long + `"}]`,
			`"system":"` + long + `","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":"c"},{"role":"user","content":"d"}]`,
			claude + `,"messages":[` + calls + `],"tools":[{"name":"read","description":"reads","input_schema":` + schema + `},{"name":"list","input_schema":{}},{"name":"more","input_schema":{"properties": {} }}]`,
			claude + `,"messages":[{"role":"user","content":"hello"}],"output_config":{"effort":"high"}`,
			`"system":"` + long + `","messages":[{"role":"user","content":"hello"}],"thinking":{"type":"disabled"}`,
			`"system":"` + long + `","messages":[{"role":"user","content":"hello"},{"role":"system","content":"a reminder"},{"role":"user","content":"go on"}],"thinking":{"type":"enabled","budget_tokens":2000}`,
			`"system":"` + long + `","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"text","text":"what is it?"}]}]`,
		},
		responses: {
			`"input":"` + long + `"`,
			`"instructions":"be brief","input":[` + items + `],"tools":[{"type":"function","name":"read","description":"reads","parameters":` + schema + `,"strict":true},{"type":"web_search"}]`,
			`"input":[{"role":"user","content":"` + long + `"}],"reasoning":{"effort":"high"}`,
		},
	}
}

// Each body of an agent has as many tokens as the engine counts for it, and the blocks
// that it says it has, whether the engine renders it or we convert it.
func TestAgentBodies(t *testing.T) {
	for path, bodies := range agentBodies() {
		for i, fields := range bodies {
			body := `{"model":"fake","max_tokens":1,` + fields + `}`
			var rendered []uint64
			for _, renders := range []bool{true, false} {
				b := newBench(t, nil)
				if !renders {
					b.fail(path+"/render", 403)
				}
				r, _, ok := b.prepare(path, body, 0)
				if want := b.inputTokens(path, body); !ok || r.Input != want || len(r.Blocks) < 3 {
					t.Errorf("%s %d, rendered %v: %v, %d tokens in %d blocks, the engine counts %d", path, i, renders, ok, r.Input, len(r.Blocks), want)
				}
				if renders {
					rendered = r.Blocks
				} else if fmt.Sprint(r.Blocks) != fmt.Sprint(rendered) {
					t.Errorf("%s %d: %d blocks are not the %d that the engine renders", path, i, len(r.Blocks), len(rendered))
				}
				if renders != (b.calls.Load() == 0) {
					t.Errorf("%s %d, rendered %v: %d calls of /tokenize", path, i, renders, b.calls.Load())
				}
			}
		}
	}
}

// What only an engine can convert is placed by load, and never refused.
func TestBodiesThatAreNotConverted(t *testing.T) {
	for path, bodies := range map[string][]string{
		messages: {
			`"messages":[{"role":"user","content":[{"type":"document","source":{}}]}]`,
			`"messages":[{"role":"ctx","content":"a"}]`,
			`"messages":[{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"t","content":[]}]}]`,
			`"messages":[{"role":"user","content":7}]`,
			`"messages":[{"role":"system","content":[{"type":"tool_addition","tool":{}}]},{"role":"user","content":"a"}]`,
			`"messages":[{"role":"user","content":"a"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]`,
		},
		responses: {
			`"input":[{"type":"item_reference","id":"x"},{"role":"user","content":"a"}]`,
			`"input":[{"role":"user","content":[{"type":"input_image","image_url":"http://x"}]}]`,
			`"input":[{"type":"reasoning","encrypted_content":"x","summary":[]},{"role":"user","content":"a"}]`,
			`"input":"a","tools":[{"type":"custom","name":"x"}]`,
			`"input":[{"type":"function_call","namespace":"n","name":"x","arguments":"{}"}]`,
			`"input":"a","previous_response_id":"resp_1"`,
		},
	} {
		b := newBench(t, func(o *decider.TokenOptions) { o.OnUntokenized = "reject" })
		b.fail(path+"/render", 404)
		for _, fields := range bodies {
			r, d, ok := b.prepare(path, `{"model":"fake",`+fields+`}`, 0)
			if !ok || len(r.Blocks) > 0 || d.Status != 0 {
				t.Errorf("%s %s: %v, %d blocks, status %d", path, fields, ok, len(r.Blocks), d.Status)
			}
		}
	}
}

// picky is an engine that converts bodies of Messages in another way than the fake
// one: it counts what change has made of the body.
type picky struct {
	*fakevllm.Server
	change func(body string) string
	counts int
}

func (p *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	text := string(body)
	switch r.URL.Path {
	case "/v1/messages/render":
		http.Error(w, "{}", http.StatusNotFound)
		return
	case "/v1/messages/count_tokens":
		p.counts++
		text = p.change(text)
	}
	q := httptest.NewRequest(r.Method, r.URL.Path, strings.NewReader(text))
	p.Server.ServeHTTP(w, q)
}

// How an engine converts what may be converted in several ways is found once, by what
// it counts; and when none of them fits, the tokens stay unknown.
func TestFindsHowAnEngineConverts(t *testing.T) {
	merge := strings.NewReplacer(`"system":"first"`, `"system":"firsta reminder"`, `{"role":"system","content":"a reminder"},`, "")
	for _, c := range []struct {
		name, body string
		change     func(string) string
		tokens     bool
	}{
		{"as usual", `"system":"first","messages":[{"role":"user","content":"` + long + `"},{"role":"system","content":"a reminder"},{"role":"user","content":"x"}]`, func(s string) string { return s }, true},
		{"merges system messages", `"system":"first","messages":[{"role":"user","content":"` + long + `"},{"role":"system","content":"a reminder"},{"role":"user","content":"x"}]`, merge.Replace, true},
		{"thinks a little", `"messages":[{"role":"user","content":"` + long + `"}],"thinking":{"type":"disabled"}`, strings.NewReplacer(`"thinking":{"type":"disabled"}`, `"output_config":{"effort":"low"}`).Replace, true},
		{"leaves out tools", `"messages":[{"role":"user","content":"` + long + `"}],"tools":[{"name":"a","input_schema":{}}],"tool_choice":{"type":"none"}`, strings.NewReplacer(`,"tools":[{"name":"a","input_schema":{}}]`, "").Replace, true},
		{"in no way known", `"messages":[{"role":"user","content":"` + long + `"}]`, strings.NewReplacer("plain", "most plain").Replace, false},
	} {
		b := newBench(t, nil)
		var log strings.Builder
		b.tokenizer.Log = slog.New(slog.NewTextHandler(&log, nil))
		p := &picky{Server: fakevllm.New(fakevllm.Options{}), change: c.change}
		s := httptest.NewServer(p)
		b.decider.Apply(decider.Config{Pools: []decider.PoolConfig{{
			Name: "llama", Models: []string{"fake"}, Policy: b.policy,
			Replicas: []decider.ReplicaConfig{{Name: "r0", Address: s.Listener.Addr().(*net.TCPAddr).String()}},
		}}})
		for i := range 3 {
			body := fmt.Sprintf(`{"model":"fake","max_tokens":%d,`, i+1) + c.body + `}`
			body = strings.Replace(body, "plain words", fmt.Sprintf("plain word%d", i), 1)
			r, _, ok := b.prepare(messages, body, 0)
			b.idle()
			want := 0
			if c.tokens {
				w := httptest.NewRecorder()
				p.Server.ServeHTTP(w, httptest.NewRequest("POST", "/v1/messages/count_tokens", strings.NewReader(c.change(body))))
				fmt.Sscanf(w.Body.String(), `{"input_tokens":%d}`, &want)
			}
			if !ok || (len(r.Blocks) > 2) != c.tokens || c.tokens && r.Input != want {
				t.Errorf("%s: %v, %d blocks, %d tokens, want %d", c.name, ok, len(r.Blocks), r.Input, want)
			}
		}
		if p.counts != 1 {
			t.Errorf("%s: counted %d times", c.name, p.counts)
		}
		if said := strings.Contains(log.String(), "counts other tokens"); said == c.tokens {
			t.Errorf("%s: the log says %q", c.name, log.String())
		}
		for _, c := range b.tokenizer.clients {
			c.CloseIdleConnections()
		}
		s.Close()
		p.Close()
	}
}

// An engine with an API key counts nothing for us. What does not depend on its template
// is tokenized all the same, and it is asked for the count once.
func TestEngineThatWantsAKey(t *testing.T) {
	b := newBench(t, nil)
	counts := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			if strings.HasSuffix(r.URL.Path, "count_tokens") {
				counts++
			}
			http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
			return
		}
		b.engine.ServeHTTP(w, r)
	}))
	b.decider.Apply(decider.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Models: []string{"fake"}, Policy: b.policy,
		Replicas: []decider.ReplicaConfig{{Name: "r0", Address: s.Listener.Addr().(*net.TCPAddr).String()}},
	}}})
	for i := range 3 {
		body := fmt.Sprintf(`{"model":"fake","max_tokens":1,"messages":[{"role":"user","content":"%d %s"}]}`, i, long)
		r, _, _ := b.prepare(messages, body, 0)
		if want := b.inputTokens(messages, body); r.Input != want || counts != 1 {
			t.Errorf("%d tokens, want %d; counted %d times", r.Input, want, counts)
		}
		b.idle()
	}
	r, _, ok := b.prepare(messages, `{"model":"fake","messages":[{"role":"user","content":"`+long+`"}],"thinking":{"type":"disabled"}}`, 0)
	if !ok || len(r.Blocks) > 0 {
		t.Errorf("%v, %d blocks of what depends on the template", ok, len(r.Blocks))
	}
	for _, c := range b.tokenizer.clients {
		c.CloseIdleConnections()
	}
	s.Close()
}

// FuzzConvert reads anything as a body of either API: what comes out is a chat.
func FuzzConvert(f *testing.F) {
	for _, bodies := range agentBodies() {
		for _, fields := range bodies {
			f.Add([]byte(`{"model":"m",`+fields+`}`), uint8(0))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, other uint8) {
		if c, _, err := convertMessages(body, shape(other)&choices); err == nil && len(c.Messages) > len(body) {
			t.Fatalf("%d messages of %d bytes", len(c.Messages), len(body))
		}
		if c, err := convertResponses(body); err == nil && len(c.Messages) > len(body)+1 {
			t.Fatalf("%d messages of %d bytes", len(c.Messages), len(body))
		}
	})
}
