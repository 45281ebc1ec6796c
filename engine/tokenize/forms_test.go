package tokenize

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"pointsman/keyed"
	"slices"
	"strings"
	"testing"

	"pointsman/decider"
	"pointsman/sim/fakevllm"
)

// promptTokens returns how many tokens the engine of b counts for a request.
func (b *bench) promptTokens(path, body string) int { return b.counted(path, body, "prompt_tokens") }

// counted returns a count of tokens in the engine's answer to a request.
func (b *bench) counted(path, body, field string) int {
	b.t.Helper()
	w := httptest.NewRecorder()
	b.engine.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
	_, after, _ := strings.Cut(w.Body.String(), `"`+field+`":`)
	n := 0
	if _, err := fmt.Sscan(strings.NewReplacer(",", " ", "}", " ").Replace(after), &n); err != nil || w.Code != http.StatusOK {
		b.t.Fatalf("%d %s", w.Code, w.Body)
	}
	return n
}

// Each form of a prompt has as many tokens as the engine counts for it.

func TestFormsOfPrompts(t *testing.T) {
	ids := strings.TrimSuffix(strings.Repeat("301,302,303,304,", 12), ",")
	long := strings.Repeat("plain words ", 20)
	messages := `"messages":[{"role":"user","content":"` + long + `"}]`
	for _, c := range []struct {
		name, path, body string
		calls            int64 // of /tokenize
	}{
		{"text", "/v1/completions", `{"model":"fake","prompt":"` + long + `"}`, 1},
		{"ids", "/v1/completions", `{"model":"fake","prompt":[` + ids + `]}`, 0},
		{"lists of ids", "/v1/completions", `{"model":"fake","prompt":[[` + ids + `],[1,` + ids + `]]}`, 0},
		{"texts", "/v1/completions", `{"model":"fake","prompt":["` + long + `","and ` + long + `"]}`, 2},
		{"chat", chat, `{"model":"fake",` + messages + `}`, 1},
		{"effort", chat, `{"model":"fake","reasoning_effort":"high",` + messages + `}`, 0},
		{"documents", chat, `{"model":"fake",` + messages + `,"documents":[{"text":"` + long + `"}]}`, 0},
		{"format", chat, `{"model":"fake",` + messages + `,"response_format":{"type":"json_object"}}`, 0},
		{"arguments", chat, `{"model":"fake",` + messages + `,"chat_template_kwargs":{"reasoning_effort":"low"}}`, 1},
	} {
		b := newBench(t, nil)
		r, _, ok := b.prepare(c.path, c.body, 0)
		if want := b.promptTokens(c.path, c.body); !ok || r.Input != want || len(r.Blocks) < 3 {
			t.Errorf("%s: %v, %d tokens in %d blocks, the engine counts %d", c.name, ok, r.Input, len(r.Blocks), want)
		}
		if n := b.calls.Load(); n != c.calls {
			t.Errorf("%s: %d calls, want %d", c.name, n, c.calls)
		}
		again, _, _ := b.prepare(c.path, c.body, 0)
		if b.calls.Load() != c.calls || !slices.Equal(again.Blocks, r.Blocks) {
			t.Errorf("%s again: %d calls, %d blocks", c.name, b.calls.Load(), len(again.Blocks))
		}
	}
}

// The same messages become other tokens if the template gets more fields.
func TestTemplateFields(t *testing.T) {
	b := newBench(t, nil)
	seen := map[uint64]string{}
	for _, field := range []string{``, `,"reasoning_effort":"low"`, `,"reasoning_effort":"high"`, `,"documents":[{"text":"a"}]`, `,"response_format":{"type":"text"}`} {
		r, _, ok := b.prepare(chat, strings.TrimSuffix(talk("one"), "}")+field+"}", 0)
		if !ok || len(r.Blocks) == 0 {
			t.Fatalf("%s: not tokenized", field)
		}
		if other, ok := seen[r.Blocks[0]]; ok {
			t.Errorf("%q has the tokens of %q", field, other)
		}
		seen[r.Blocks[0]] = field
	}
}

// An engine that renders no chats gets the same as arguments of the template.
func TestWithoutRender(t *testing.T) {
	for _, status := range []int{401, 403, 404, 405, 501} { // 403 is what vLLM 0.32 says, and 401 with a key
		b := newBench(t, nil)
		b.engine.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/fake/fail", strings.NewReader(fmt.Sprintf(`{"path":"/v1/chat/completions/render","status":%d}`, status))))
		for i, effort := range []string{"low", "high"} {
			body := strings.TrimSuffix(talk("one"), "}") + `,"reasoning_effort":"` + effort + `","chat_template_kwargs":{"x":1}}`
			r, _, ok := b.prepare(chat, body, 0)
			if want := b.promptTokens(chat, body); !ok || r.Input != want || b.calls.Load() != int64(i+1) {
				t.Errorf("%d: %v, %d tokens, want %d, %d calls", status, ok, r.Input, want, b.calls.Load())
			}
		}
	}
}

// An engine that lacks an adapter does not tokenize for it: one that lists it is asked.
func TestAsksWhoHasTheAdapter(t *testing.T) {
	b := newBench(t, nil)
	p := b.decider.Pool("llama")
	address := p.Members()[0].Address
	lacks := httptest.NewServer(http.NotFoundHandler())
	defer lacks.Close()
	without := strings.TrimPrefix(lacks.URL, "http://")
	b.decider.Apply(decider.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Models: []string{"fake"}, LoRA: []string{"sql"}, Policy: b.policy,
		Replicas: []decider.ReplicaConfig{{Name: "r0", Address: address}, {Name: "r1", Address: without}, {Name: "r2", Address: without}, {Name: "r3", Address: without}},
	}}})
	b.decider.Adapters(p, "r0", []string{"sql"})
	for i := range 8 {
		body := fmt.Sprintf(`{"model":"sql","prompt":"question %d: %s"}`, i, strings.Repeat("word ", 80))
		if r, _, ok := b.prepare("/v1/completions", body, 0); !ok || len(r.Blocks) == 0 {
			t.Errorf("request %d has no tokens", i)
		}
	}
}

// llama.cpp tokenizes text alone, and has another call for the template.
func TestTokenizesWithLlamaCpp(t *testing.T) {
	b := newBench(t, nil)
	b.engine.Close()
	b.engine = fakevllm.New(fakevllm.Options{LlamaCpp: true})
	for _, c := range []struct{ path, body string }{
		{chat, talk("one", "two", "three")},
		{chat, strings.TrimSuffix(talk("one"), "}") + `,"reasoning_effort":"high"}`},
		{"/v1/completions", `{"prompt":"` + strings.Repeat("text ", 50) + `"}`},
		{"/v1/completions", `{"prompt":["` + strings.Repeat("text ", 50) + `","` + strings.Repeat("more ", 50) + `"]}`},
	} {
		r, _, ok := b.prepare(c.path, c.body, 0)
		if want := b.promptTokens(c.path, c.body); !ok || r.Input != want || len(r.Blocks) < 3 {
			t.Errorf("%.40s: %v, %d tokens in %d blocks, the engine counts %d", c.body, ok, r.Input, len(r.Blocks), want)
		}
	}
}

// What llama.cpp 0.7.0 and vLLM 0.32.0 answered, as they answered it.
func TestAnswersOfRealEngines(t *testing.T) {
	const vllm400 = `{"error":{"message":"2 validation errors:\n  {'type': 'string_type', 'loc': 'body.prompt', 'msg': 'Input should be a valid string', 'input': '<list of 2 items>'}","type":"Bad Request","param":"body.prompt","code":400}}`
	for _, c := range []struct {
		name    string
		answers map[string]string // by path and a part of the body
		body    string
		want    int
	}{
		{"vllm", map[string]string{`/tokenize "prompt":"`: `{"count":10,"max_model_len":4096,"tokens":[1,266,80,280,1853,546,16,1333,328,1990],"token_strs":null}`}, `{"model":"my-llama","prompt":"hello world, this is pointsman"}`, 10},
		{"vllm, two", map[string]string{`/tokenize "prompt":["`: vllm400, `/tokenize "prompt":"`: `{"count":3,"max_model_len":4096,"tokens":[1,266,80],"token_strs":null}`}, `{"model":"my-llama","prompt":["a b","c d"]}`, 6},
		{"llama.cpp", map[string]string{`/tokenize "prompt":"`: `{"tokens":[]}`, `/tokenize "content":"hello`: `{"tokens":[266,80,280,1853,546,16,1333,328,1990]}`}, `{"model":"my-llama","prompt":"hello world, this is pointsman"}`, 9},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := make([]byte, r.ContentLength)
			if _, err := r.Body.Read(body); err != nil && len(body) == 0 {
				t.Error(err)
			}
			for is, answer := range c.answers {
				path, part, _ := strings.Cut(is, " ")
				if r.URL.Path == path && strings.Contains(string(body), part) {
					if strings.HasPrefix(answer, `{"error"`) {
						w.WriteHeader(http.StatusBadRequest)
					}
					fmt.Fprint(w, answer)
					return
				}
			}
			t.Errorf("%s: %s %s", c.name, r.URL.Path, body)
			http.NotFound(w, r)
		}))
		b := newBench(t, nil)
		q, err := newQuestion([]byte(c.body), Completions)
		if err != nil {
			t.Fatal(err)
		}
		lists, err := b.tokenizer.ask(s.Listener.Addr().(*net.TCPAddr).String(), q)
		if e := newEntry(keyed.New(nil), lists, 1, 16); err != nil || e.tokens != c.want {
			t.Errorf("%s: %v, %d tokens, want %d", c.name, err, e.tokens, c.want)
		}
		for _, c := range b.tokenizer.clients {
			c.CloseIdleConnections()
		}
		s.Close()
	}
}

// An engine that does not tokenize is named once in the log.
func TestSaysWhatAnEngineCannotDo(t *testing.T) {
	b := newBench(t, nil)
	var log strings.Builder
	b.tokenizer.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.engine.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/fake/fail", strings.NewReader(`{"path":"/tokenize","status":404}`)))
	for i := range 3 {
		b.prepare(chat, talk(fmt.Sprint(i)), 0)
	}
	if n := strings.Count(log.String(), "refuses to tokenize"); n != 1 || strings.Contains(log.String(), "0 0 0") {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
}

// Whatever is in a body, reading its prompt ends, with as many prompts as are allowed.
func FuzzQuestion(f *testing.F) {
	for _, s := range []string{`{"prompt":"a"}`, `{"prompt":[1,2]}`, `{"prompt":[[1],[2]]}`, `{"prompt":["a","b"]}`, `{"messages":[],"chat_template_kwargs":{"a":1}}`, `{"prompt":[-1,1e9,1.5]}`, `[`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for form := Form(0); form < formCount; form++ {
			if q, err := newQuestion(body, form); err == nil {
				if len(q.prompts) > maxPrompts {
					t.Fatal(len(q.prompts))
				}
				_, _ = q.fields.merged(body)
			}
		}
		if lists, ok := idsOf(body); ok && len(lists) == 0 {
			t.Fatal("no list")
		}
	})
}
