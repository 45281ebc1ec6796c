package fakevllm

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/sim"
)

func TestChatStream(t *testing.T) {
	r := start(t, Options{})
	resp, out := r.do(http.MethodPost, "/v1/chat/completions", `{"model":"m","stream":true,"max_tokens":3,"seed":7,"stream_options":{"include_usage":true},`+hello+`}`)
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream; charset=utf-8" {
		t.Fatalf("%d %s", resp.StatusCode, ct)
	}
	head := `{"id":"chatcmpl-r1-1","object":"chat.completion.chunk","created":NOW,"model":"m","choices":[`
	got := events(t, out)
	want := []string{
		head + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
		head + `{"index":0,"delta":{"content":"r1: "},"logprobs":null,"finish_reason":null}]}`,
		head + `{"index":0,"delta":{"content":"TEXT"},"logprobs":null,"finish_reason":null}]}`,
		head + `{"index":0,"delta":{"content":"TEXT"},"logprobs":null,"finish_reason":"length","stop_reason":null}]}`,
		head + `],"usage":{"prompt_tokens":18,"total_tokens":21,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}`,
		`[DONE]`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d events: %s", len(got), out)
	}
	for i := range want {
		g := masked(got[i])
		if before, after, ok := strings.Cut(want[i], "TEXT"); ok {
			if len(g) != len(want[i]) || !strings.HasPrefix(g, before) || !strings.HasSuffix(g, after) {
				t.Errorf("event %d:\n%s\n%s", i, g, want[i])
			}
		} else if g != want[i] {
			t.Errorf("event %d:\n%s\n%s", i, g, want[i])
		}
	}
}

func TestCompletionStream(t *testing.T) {
	r := start(t, Options{Name: `a "b"` + "\n" + `é`})
	_, out := r.do(http.MethodPost, "/v1/completions", `{"prompt":["one","two"],"n":2,"stream":true,"max_tokens":2,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
	texts := map[int]string{}
	chunks := events(t, out)
	for _, e := range chunks[:len(chunks)-1] {
		var c struct {
			Object  string
			Model   string
			Choices []struct {
				Index        int
				Text         string
				FinishReason *string `json:"finish_reason"`
			}
			Usage *wireUsage
		}
		if err := sonic.UnmarshalString(e, &c); err != nil {
			t.Fatalf("%v: %s", err, e)
		}
		if c.Object != "text_completion" || c.Model != "m" || c.Usage == nil || c.Usage.PromptTokens != 2 {
			t.Errorf("chunk %s", e)
		}
		for _, choice := range c.Choices {
			texts[choice.Index] += choice.Text
			if choice.FinishReason != nil {
				texts[choice.Index] += *choice.FinishReason
			}
		}
	}
	if len(texts) != 4 || chunks[len(chunks)-1] != "[DONE]" {
		t.Fatalf("texts %v", texts)
	}
	for i, text := range texts {
		if !strings.HasPrefix(text, r.o.Name+": ") || !strings.HasSuffix(text, "length") {
			t.Errorf("choice %d: %q", i, text)
		}
	}
}

// TestStreamEqualsWhole: a stream and a whole answer to the same request have the
// same text.
func TestStreamEqualsWhole(t *testing.T) {
	r := start(t, Options{})
	whole := r.answer("/v1/chat/completions", `{"max_tokens":50,`+hello+`}`)
	if c := whole.Choices[0]; c.Message.Role != "assistant" || c.FinishReason != "length" || whole.Object != "chat.completion" || whole.Usage.CompletionTokens != 50 {
		t.Errorf("answer %+v", whole)
	}
	_, out := r.do(http.MethodPost, "/v1/chat/completions", `{"max_tokens":50,"stream":true,`+hello+`}`)
	text := ""
	chunks := events(t, out)
	for _, e := range chunks[:len(chunks)-1] {
		var c struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := sonic.UnmarshalString(e, &c); err != nil {
			t.Fatal(err)
		}
		text += c.Choices[0].Delta.Content
	}
	if text != whole.Choices[0].Message.Content || !strings.HasPrefix(text, "r1: ") {
		t.Errorf("%q\n%q", text, whole.Choices[0].Message.Content)
	}
}

func TestOutputLength(t *testing.T) {
	r := start(t, Options{MaxModelLen: 1000})
	for _, c := range []struct {
		path, body, finish string
		min, max           int
	}{
		{"/v1/completions", `{"prompt":"a"}`, "length", 16, 16},
		{"/v1/completions", `{"prompt":[1,2,3],"max_tokens":1}`, "length", 1, 1},
		{"/v1/completions", `{"prompt":"a","max_tokens":900}`, "stop", 128, 383},
		{"/v1/completions", `{"prompt":"a","max_tokens":900,"min_tokens":800}`, "stop", 800, 800},
		{"/v1/completions", `{"prompt":"a","max_tokens":900,"ignore_eos":true}`, "length", 900, 900},
		{"/v1/chat/completions", `{` + hello + `}`, "stop", 128, 383},
		{"/v1/chat/completions", `{` + hello + `,"max_tokens":7,"max_completion_tokens":9}`, "length", 9, 9},
		{"/v1/chat/completions", `{` + hello + `,"ignore_eos":true}`, "length", 1000 - 18, 1000 - 18},
	} {
		a := r.answer(c.path, c.body)
		if n := a.Usage.CompletionTokens; n < c.min || n > c.max || a.Choices[0].FinishReason != c.finish {
			t.Errorf("%s: %d tokens, %s", c.body, n, a.Choices[0].FinishReason)
		}
	}
}

// TestCachedTokens: a second turn finds the first one and its answer in the
// cache; requests with other salts, adapters or tools do not.
func TestCachedTokens(t *testing.T) {
	r := start(t, Options{LoRA: []string{"sql"}})
	long := strings.Repeat("word ", 200)
	turn := func(extra, more string) answer {
		return r.answer("/v1/chat/completions", `{"max_tokens":64,`+extra+`"messages":[{"role":"system","content":"`+long+`"},{"role":"user","content":"hi"}`+more+`]}`)
	}
	first := turn("", "")
	if first.Usage.Details.CachedTokens != 0 {
		t.Errorf("first turn: %+v", first.Usage)
	}
	second := turn("", `,{"role":"assistant","content":"`+first.Choices[0].Message.Content+`"},{"role":"user","content":"go on"}`)
	// All but the last token of the answer, which has no KV, in blocks of 16.
	if want := (first.Usage.TotalTokens - 1) / 16 * 16; second.Usage.Details.CachedTokens != want {
		t.Errorf("second turn: %+v, want %d cached", second.Usage, want)
	}
	for _, extra := range []string{`"cache_salt":"x",`, `"model":"sql",`, `"tools":[{"type":"function"}],`} {
		if u := turn(extra, "").Usage; u.Details.CachedTokens != 0 {
			t.Errorf("%s shares the cache: %+v", extra, u)
		}
	}
	if q, h := r.metric("vllm:prefix_cache_queries_total"), r.metric("vllm:prefix_cache_hits_total"); h != float64(second.Usage.Details.CachedTokens) || q <= h {
		t.Errorf("metrics: %v hits of %v", h, q)
	}
}

func TestEmbeddings(t *testing.T) {
	r := start(t, Options{})
	var e struct {
		Data []struct {
			Index     int
			Embedding []float32
		}
		Usage wireUsage
	}
	status, out := r.post("/v1/embeddings", `{"model":"m","input":["one two","three","one two"]}`)
	if err := sonic.UnmarshalString(out, &e); status != 200 || err != nil {
		t.Fatalf("%d %v %s", status, err, out)
	}
	if len(e.Data) != 3 || !slices.Equal(e.Data[0].Embedding, e.Data[2].Embedding) || slices.Equal(e.Data[0].Embedding, e.Data[1].Embedding) {
		t.Error("equal inputs must have equal vectors, and only they")
	}
	if e.Usage.PromptTokens != 6 || e.Usage.TotalTokens != 6 {
		t.Errorf("usage %+v", e.Usage)
	}
	sum := 0.0
	for _, v := range e.Data[1].Embedding {
		sum += float64(v) * float64(v)
	}
	if len(e.Data[1].Embedding) != embeddingSize || sum < 0.999 || sum > 1.001 {
		t.Errorf("%d numbers of square sum %v", len(e.Data[1].Embedding), sum)
	}
	if _, out := r.post("/v1/embeddings", `{"input":[1,2],"encoding_format":"base64"}`); !strings.Contains(out, `"embedding":"`) {
		t.Errorf("base64: %s", out)
	}
}

// TestStreamIsLive: the tokens of a stream come one by one, after the headers.
func TestStreamIsLive(t *testing.T) {
	r := start(t, Options{Speed: 1, Profile: sim.Profile{Name: "slow", PrefillRate: 1e6, Chunk: 1024, Base: 30 * time.Millisecond, AttentionDepth: 1e9, MaxRunning: 4}})
	begin := time.Now()
	resp, err := r.send(t.Context(), "POST", "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":5}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	headers := time.Since(begin)
	lines := bufio.NewScanner(resp.Body)
	var at []time.Duration
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: {") {
			at = append(at, time.Since(begin))
		}
	}
	if len(at) != 5 || headers > at[0] {
		t.Fatalf("headers after %v, tokens after %v", headers, at)
	}
	for i, d := range at {
		if least := time.Duration(i+1) * 30 * time.Millisecond; d < least {
			t.Errorf("token %d after %v, before %v", i, d, least)
		}
	}
}

// TestStreamHeadersGoFirst: the headers of a stream do not wait for its first
// token.
func TestStreamHeadersGoFirst(t *testing.T) {
	r := start(t, Options{Speed: 1, Profile: sim.Profile{Name: "stuck", PrefillRate: 1, Chunk: 1024, Base: time.Hour, AttentionDepth: 1e9, MaxRunning: 4}})
	resp, err := r.send(t.Context(), "POST", "/v1/chat/completions", `{"stream":true,`+hello+`}`)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("X-Engine") != "r1" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}
