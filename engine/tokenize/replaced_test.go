package tokenize

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/loopback"
	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// An engine that was found without a call is asked for it again when it may be another one:
// after Forget, after it was down, and after a while.
func TestAsksForRenderAgain(t *testing.T) {
	for name, change := range map[string]func(b *bench, address string){
		"nothing happens": func(*bench, string) {},
		"forgotten":       func(b *bench, address string) { b.tokenizer.Forget(address, false) },
		"another is forgotten": func(b *bench, address string) {
			b.tokenizer.Forget("10.0.0.1:1", true)
		},
		"much later": func(b *bench, _ string) {
			b.tokenizer.now = func() time.Time { return time.Now().Add(learnedFor + time.Second) }
		},
		"was down": func(b *bench, address string) {
			b.server.Close()
			loopback.Free(b.listener, address)
			if r, _, _ := b.prepare(chat, talk("while it is down"), 0); len(r.Blocks) > 0 {
				t.Error("tokens while the engine is down")
			}
			b.idle()
			b.serve(proxies.Listen(t, address))
		},
	} {
		b := newBench(t, nil)
		address := b.decider.Pool("llama").Members()[0].Address
		effort := func(text string) string { return strings.TrimSuffix(talk(text), "}") + `,"reasoning_effort":"low"}` }
		b.engine.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/fake/fail", strings.NewReader(`{"path":"/v1/chat/completions/render","status":404}`)))
		ask := func(text string) (tokenized int64) { // calls of /tokenize instead of the other
			before := b.calls.Load()
			r, _, ok := b.prepare(chat, effort(text), 0)
			if want := b.promptTokens(chat, effort(text)); !ok || r.Input != want {
				t.Errorf("%s: %v, %d tokens, want %d", name, ok, r.Input, want)
			}
			return b.calls.Load() - before
		}
		if ask("one") != 1 {
			t.Fatalf("%s: rendered by an engine that does not", name)
		}
		b.engine.Close()
		b.engine = fakevllm.New(fakevllm.Options{}) // an upgrade
		change(b, address)
		again := name != "nothing happens" && name != "another is forgotten"
		if n := ask("two"); n == 0 != again {
			t.Errorf("%s: %d calls of /tokenize", name, n)
		}
	}
}

// Prompts are tokenized by whatever engine serves at an address now, without any notice.
func TestTokenizesWithAnEngineOfAnotherKind(t *testing.T) {
	kinds := []fakevllm.Options{{}, {LlamaCpp: true}, {}, {LlamaCpp: true}}
	for _, c := range []struct{ path, body string }{
		{chat, talk("KIND", "two")},
		{chat, strings.TrimSuffix(talk("KIND"), "}") + `,"reasoning_effort":"high"}`},
		{"/v1/completions", `{"prompt":"` + strings.Repeat("KIND ", 50) + `"}`},
		{"/v1/completions", `{"prompt":["` + strings.Repeat("KIND ", 50) + `","` + strings.Repeat("more ", 50) + `"]}`},
	} {
		b := newBench(t, nil)
		for i, o := range kinds {
			b.engine.Close()
			b.engine = fakevllm.New(o)
			body := strings.ReplaceAll(c.body, "KIND", fmt.Sprint("kind", i))
			r, _, ok := b.prepare(c.path, body, 0)
			if want := b.promptTokens(c.path, body); !ok || r.Input != want || len(r.Blocks) < 3 {
				t.Errorf("engine %d, %.40s: %v, %d tokens in %d blocks, the engine counts %d", i, body, ok, r.Input, len(r.Blocks), want)
			}
		}
	}
}

// A prompt that was tokenized before is tokenized again in the background when another
// model or template may be there, once; and a refusal is logged again after an answer.
func TestTokensAreRefreshed(t *testing.T) {
	b := newBench(t, nil)
	var count, status, calls atomic.Int64
	count.Store(20)
	status.Store(200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.WriteHeader(int(status.Load()))
		fmt.Fprint(w, `{"tokens":[1`, strings.Repeat(",2", int(count.Load()-1)), `]}`)
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	var log strings.Builder
	b.tokenizer.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.decider.Apply(decider.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Models: []string{"fake"}, Policy: b.policy, Replicas: []decider.ReplicaConfig{{Name: "r0", Address: address}},
	}}})
	var late time.Duration
	b.tokenizer.now = func() time.Time { return time.Now().Add(late) }
	expect := func(what string, tokens int, asked int64) {
		t.Helper()
		r, _, _ := b.prepare(chat, talk("one"), 0)
		b.idle()
		if r.Input != tokens || calls.Load() != asked {
			t.Errorf("%s: %d tokens, want %d; %d calls, want %d", what, r.Input, tokens, calls.Load(), asked)
		}
	}
	expect("first", 20, 1)
	count.Store(30)
	expect("known", 20, 1)
	b.tokenizer.Forget(address, false)
	expect("an engine that did not answer for a while", 20, 1)
	b.tokenizer.Forget(address, true)
	expect("another engine, while it is asked", 20, 2)
	expect("another engine", 30, 2)
	count.Store(40)
	late = learnedFor + time.Second
	expect("later, while it is asked", 30, 3)
	expect("later", 40, 3)
	status.Store(404)
	b.tokenizer.Forget(address, true)
	for range 3 {
		expect("an engine that does not answer", 40, 4)
	}
	refuse := func(text string, times int) {
		t.Helper()
		b.prepare(chat, talk(text), 0)
		b.idle()
		if n := strings.Count(log.String(), "refuses to tokenize"); n != times {
			t.Errorf("the log says %d times that it refuses, want %d:\n%s", n, times, log.String())
		}
	}
	refuse("refused", 1)
	b.tokenizer.Forget(address, true)
	refuse("refused by the next one", 1)
	status.Store(200)
	refuse("answered", 1)
	status.Store(404)
	refuse("refused again", 2)
}
