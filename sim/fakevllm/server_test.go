package fakevllm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bytedance/sonic"
	"go.uber.org/goleak"

	"pointsman/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica is a Server behind a real socket.
type replica struct {
	*testing.T
	*Server
	url    string
	client *http.Client
}

func start(t *testing.T, o Options) *replica {
	t.Helper()
	if o.Name == "" {
		o.Name = "r1"
	}
	if o.Models == nil {
		o.Models = []string{"m", "alias"}
	}
	s := New(o)
	h := httptest.NewUnstartedServer(s)
	h.Config = s.HTTPServer()
	h.Start()
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		h.CloseClientConnections()
		s.Close()
		h.Close()
	})
	return &replica{t, s, h.URL, &http.Client{Transport: transport}}
}

// send makes a request; headers are pairs of name and value.
func (r *replica) send(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	r.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return r.client.Do(req)
}

// do makes a request that is answered, and reads the answer.
func (r *replica) do(method, path, body string, headers ...string) (*http.Response, string) {
	r.Helper()
	resp, err := r.send(r.Context(), method, path, body, headers...)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp, string(out)
}

func (r *replica) post(path, body string) (int, string) {
	r.Helper()
	resp, out := r.do(http.MethodPost, path, body)
	return resp.StatusCode, out
}

// metric is the value of the first sample that begins with prefix; -1 if none.
func (r *replica) metric(prefix string) float64 {
	r.Helper()
	_, page := r.do(http.MethodGet, "/metrics", "")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, prefix) {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			if err != nil {
				r.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// eventually polls until f holds.
func (r *replica) eventually(what string, f func() bool) {
	r.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatal("never: ", what)
		}
	}
}

// events splits a stream into the data of its events.
func events(t *testing.T, stream string) []string {
	t.Helper()
	var out []string
	parts := strings.Split(stream, "\n\n")
	for _, p := range parts[:len(parts)-1] {
		data, ok := strings.CutPrefix(p, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("not an event: %q", p)
		}
		out = append(out, data)
	}
	if last := parts[len(parts)-1]; last != "" {
		t.Fatalf("stream ends with %q", last)
	}
	return out
}

// masked replaces what differs from run to run.
func masked(s string) string {
	_, after, ok := strings.Cut(s, `"created":`)
	if !ok {
		return s
	}
	return strings.Replace(s, after[:10], "NOW", 1)
}

const hello = `"messages":[{"role":"user","content":"hello there, how is the line today?"}]`

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

type answer struct {
	ID, Object, Model string
	Choices           []struct {
		Index        int
		Text         string
		Message      struct{ Role, Content string }
		FinishReason string `json:"finish_reason"`
	}
	Usage wireUsage
}

func (r *replica) answer(path, body string) (a answer) {
	r.Helper()
	status, out := r.post(path, body)
	if status != 200 {
		r.Fatalf("%d %s", status, out)
	}
	if err := sonic.UnmarshalString(out, &a); err != nil {
		r.Fatalf("%v: %s", err, out)
	}
	return a
}

// A stream and a whole answer to the same request say the same.
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

// A second turn finds the first one and its answer in the cache; other salts,
// adapters and replicas do not.
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

func TestModels(t *testing.T) {
	r := start(t, Options{LoRA: []string{"sql"}})
	_, out := r.do(http.MethodGet, "/v1/models", "")
	want := `{"object":"list","data":[` +
		`{"id":"m","object":"model","created":NOW,"owned_by":"vllm","root":"m","parent":null,"max_model_len":131072},` +
		`{"id":"alias","object":"model","created":NOW,"owned_by":"vllm","root":"m","parent":null,"max_model_len":131072},` +
		`{"id":"sql","object":"model","created":NOW,"owned_by":"vllm","root":"sql","parent":"m","max_model_len":null}]}`
	if got := strings.ReplaceAll(out, strconv.FormatInt(r.started.Unix(), 10), "NOW"); got != want {
		t.Errorf("%s\n%s", got, want)
	}
	for _, m := range []string{"m", "alias", "sql"} {
		if a := r.answer("/v1/completions", `{"model":"`+m+`","prompt":"x"}`); a.Model != m {
			t.Errorf("%s answered as %s", m, a.Model)
		}
	}
	if resp, out := r.do(http.MethodGet, "/health", ""); resp.StatusCode != 200 || out != "" {
		t.Errorf("health %d %q", resp.StatusCode, out)
	}
	if resp, out := r.do(http.MethodGet, "/version", ""); resp.StatusCode != 200 || !strings.HasPrefix(out, `{"version":"`) {
		t.Errorf("version %d %q", resp.StatusCode, out)
	}
}

func TestTokenize(t *testing.T) {
	r := start(t, Options{})
	type tokenized struct {
		Count       int
		MaxModelLen int `json:"max_model_len"`
		Tokens      []uint32
	}
	tokenize := func(body string) (out tokenized) {
		status, text := r.post("/tokenize", body)
		if err := sonic.UnmarshalString(text, &out); status != 200 || err != nil || out.Count != len(out.Tokens) || out.MaxModelLen != 131072 {
			t.Fatalf("%d %v %s", status, err, text)
		}
		return out
	}
	if n := tokenize(`{` + hello + `}`).Count; n != r.answer("/v1/chat/completions", `{`+hello+`}`).Usage.PromptTokens {
		t.Errorf("%d tokens for a chat, not what it costs", n)
	}
	if n := tokenize(`{"prompt":""}`).Count; n != 0 {
		t.Errorf("%d tokens for no text", n)
	}
	short := tokenize(`{"add_generation_prompt":false,` + hello + `}`).Tokens
	long := tokenize(`{"add_generation_prompt":false,` + hello[:len(hello)-1] + `,{"role":"assistant","content":[{"type":"text","text":"fine"},{"type":"image_url","image_url":{"url":"x"}}]}]}`).Tokens
	if len(long) < len(short)+mediaTokens || !slices.Equal(short, long[:len(short)]) {
		t.Error("a longer conversation does not begin with the shorter one")
	}
	text := "Zug fährt, 列車 fährt"
	ids, err := sonic.Marshal(tokenize(`{"prompt":"` + text + `"}`).Tokens)
	if err != nil {
		t.Fatal(err)
	}
	if _, out := r.post("/detokenize", `{"tokens":`+string(ids)+`}`); out != `{"prompt":"`+text+`"}` {
		t.Errorf("came back as %s", out)
	}
}

func TestRefusals(t *testing.T) {
	r := start(t, Options{MaxModelLen: 100})
	long := strings.Repeat("abcd", 100)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/chat/completions", `{"model":"nope",` + hello + `}`, 404, "{\"error\":{\"message\":\"The model `nope` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}"},
		{"POST", "/v1/chat/completions", `{"model":"m"}`, 400, `{"error":{"message":"body.messages: Field required","type":"Bad Request","param":"messages","code":400}}`},
		{"POST", "/v1/chat/completions", `{"messages":[{"content":"x"}]}`, 400, `messages.0.role`},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":7}]}`, 400, `want a string or parts`},
		{"POST", "/v1/chat/completions", `{"messages":"x"}`, 400, `wrong type`},
		{"POST", "/v1/chat/completions", `{"Messages":[]}`, 400, `body.messages`},
		{"POST", "/v1/chat/completions", `not JSON`, 400, `JSON decode error`},
		{"POST", "/v1/chat/completions", ``, 400, `JSON decode error`},
		{"POST", "/v1/chat/completions", "{\"model\":\"\xff\"}", 400, `invalid UTF-8`},
		{"POST", "/v1/chat/completions", `{"a":` + strings.Repeat("[", 100_000), 400, `nested deeper`},
		{"POST", "/v1/chat/completions", `{"max_tokens":0,` + hello + `}`, 400, `at least 1`},
		{"POST", "/v1/chat/completions", `{"max_tokens":100,` + hello + `}`, 400, `is too large: 100`},
		{"POST", "/v1/chat/completions", `{"n":0,` + hello + `}`, 400, `n must be`},
		{"POST", "/v1/chat/completions", `{"n":9223372036854775807,` + hello + `}`, 400, `n must be`},
		{"POST", "/v1/chat/completions", `{"stream_options":{},` + hello + `}`, 400, `stream=True`},
		{"POST", "/v1/completions", `{}`, 400, `body.prompt`},
		{"POST", "/v1/completions", `{"prompt":{}}`, 400, `want a string, strings`},
		{"POST", "/v1/completions", `{"prompt":[]}`, 400, `want a string, strings`},
		{"POST", "/v1/completions", `{"prompt":""}`, 400, `empty`},
		{"POST", "/v1/completions", `{"prompt":"` + long + `"}`, 400, `maximum context length is 100 tokens. However, your request has 100 input`},
		{"POST", "/v1/embeddings", `{}`, 400, `body.input`},
		{"POST", "/tokenize", `{}`, 400, `body.prompt`},
		{"POST", "/detokenize", `{}`, 400, `body.tokens`},
		{"GET", "/v1/chat/completions", ``, 405, `"Method Not Allowed"`},
		{"POST", "/metrics", ``, 405, `"Method Not Allowed"`},
		{"GET", "/nowhere", ``, 404, `"Not Found"`},
		{"POST", "/fake/fail", `{"status":99}`, 400, `status`},
		{"POST", "/fake/fail", `{"delay":"soon"}`, 400, `delay`},
		{"POST", "/fake/fail", `{"for":"ever"}`, 400, `for`},
		{"POST", "/fake/fail", `[`, 400, ``},
	} {
		resp, out := r.do(c.method, c.path, c.body)
		var e wireError
		err := sonic.UnmarshalString(out, &e)
		if resp.StatusCode != c.status || !strings.Contains(out, c.says) || err != nil || e.Error.Code != c.status || e.Error.Type == "" {
			t.Errorf("%s %s %.60s: %d %s", c.method, c.path, c.body, resp.StatusCode, out)
		}
	}
	for _, h := range []string{"X-Fake-Status", "X-Fake-Delay", "X-Fake-Die"} {
		if resp, out := r.do("GET", "/health", "", h, "bad"); resp.StatusCode != 400 || !strings.Contains(out, h) {
			t.Errorf("%s: %d %s", h, resp.StatusCode, out)
		}
	}
	if s := r.engine.Stats(); s.QueryTokens != 0 {
		t.Errorf("the engine worked: %+v", s)
	}
}

func TestTellsWhatItReceived(t *testing.T) {
	r := start(t, Options{})
	body := `{"prompt":"` + strings.Repeat("x", 300_000) + `","max_tokens":1}`
	resp, _ := r.do("POST", "/v1/completions", body, "X-Session-Id", "7", "X-Pm-Secret", "1")
	sum := sha256.Sum256([]byte(body))
	if got := resp.Header.Get("X-Body-Sha256"); got != hex.EncodeToString(sum[:]) {
		t.Errorf("digest %s", got)
	}
	if got := resp.Header.Get("X-Seen-Headers"); got != "accept-encoding,content-length,user-agent,x-pm-secret,x-session-id" {
		t.Errorf("saw %q", got)
	}
	if got := resp.Header.Get("X-Engine"); got != "r1" {
		t.Errorf("engine %q", got)
	}
	// A body of unknown length, and one that ends early.
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/v1/completions", io.MultiReader(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	chunked, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	chunked.Body.Close()
	if got := chunked.Header.Get("X-Body-Sha256"); chunked.StatusCode != 200 || got != hex.EncodeToString(sum[:]) {
		t.Errorf("chunked: %d, digest %s", chunked.StatusCode, got)
	}
	if got := r.rawRequest("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n{"); got != 400 {
		t.Errorf("a cut body: %d", got)
	}
	if got := r.rawRequest("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 104857601\r\n\r\n{"); got != 413 {
		t.Errorf("a body too large: %d", got)
	}
}

// rawRequest writes text to a connection, closes that half, and reads the
// status of the answer.
func (r *replica) rawRequest(text string) int {
	r.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		r.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		r.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestHTTP2(t *testing.T) {
	r := start(t, Options{})
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: p, TLSClientConfig: &tls.Config{}}
	defer transport.CloseIdleConnections()
	r.client = &http.Client{Transport: transport}
	resp, out := r.do("POST", "/v1/chat/completions", `{"stream":true,"max_tokens":5,`+hello+`}`)
	if resp.ProtoMajor != 2 || len(events(t, out)) != 7 {
		t.Errorf("%s: %s", resp.Proto, out)
	}
	resp, err := r.send(t.Context(), "POST", "/v1/chat/completions", `{"stream":true,"max_tokens":5,`+hello+`}`, "X-Fake-Die", "2")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stream that died ended well")
	}
}

// A client that goes away frees the engine, wherever its request is.
func TestCancel(t *testing.T) {
	r := start(t, Options{Speed: 1, Profile: sim.Profile70B})
	aborts := `vllm:request_success_total{engine="0",model_name="m",finished_reason="abort"}`
	long := `{"stream":%v,"max_tokens":100000,"ignore_eos":true,` + hello + `}`
	for i, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			resp, err := r.send(ctx, "POST", "/v1/chat/completions", fmt.Sprintf(long, stream))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			done <- err
		}()
		r.eventually("runs", func() bool { return r.metric("vllm:num_requests_running") == 1 })
		r.eventually("has a token", func() bool { return r.metric("vllm:time_to_first_token_seconds_count") == float64(i+1) })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		r.eventually("is counted", func() bool { return r.metric(aborts) == float64(i+1) })
		r.eventually("is gone", func() bool {
			return r.metric("vllm:num_requests_running") == 0 && r.metric("vllm:kv_cache_usage_perc") == 0
		})
	}
}

// Close ends what is in flight.
func TestCloseInFlight(t *testing.T) {
	r := start(t, Options{Speed: 1})
	resp, err := r.send(t.Context(), "POST", "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":100000,"ignore_eos":true}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.Close()
	r.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stream ended well on a closed engine")
	}
}

func TestFaults(t *testing.T) {
	r := start(t, Options{})
	chat := `{"stream":true,"max_tokens":5,` + hello + `}`
	const path = "/v1/chat/completions"
	if resp, out := r.do("POST", path, chat, "X-Fake-Status", "503"); resp.StatusCode != 503 || !strings.Contains(out, `"type":"ServiceUnavailable","param":null,"code":503`) {
		t.Errorf("status: %d %s", resp.StatusCode, out)
	}
	begin := time.Now()
	if resp, _ := r.do("POST", path, chat, "X-Fake-Delay", "30ms"); resp.StatusCode != 200 || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("delay: %d after %v", resp.StatusCode, time.Since(begin))
	}
	// The transport tries a dead connection again only if it had been used.
	r.client.Transport.(*http.Transport).DisableKeepAlives = true
	if _, err := r.send(t.Context(), "POST", path, chat, "X-Fake-Die", "0"); err == nil {
		t.Error("answered after it should have died")
	}
	for n := 1; n <= 6; n++ {
		resp, err := r.send(t.Context(), "POST", path, chat, "X-Fake-Die", strconv.Itoa(n))
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		// A reset may overtake what was sent before it.
		if got := bytes.Count(out, []byte("\n\n")); err == nil || got > n {
			t.Errorf("died after %d chunks: %d came, %v", n, got, err)
		}
	}
	resp, err := r.send(t.Context(), "POST", path, `{`+hello+`}`, "X-Fake-Die", "1")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(resp.Body); err == nil || int64(len(out)) >= resp.ContentLength {
		t.Errorf("died in a whole answer: %d bytes, %v", len(out), err)
	}
	resp.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := r.send(ctx, "POST", path, chat, "X-Fake-Hang", "1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v", err)
	}
}

func TestStandingFaults(t *testing.T) {
	r := start(t, Options{})
	status := func(path string) int {
		resp, _ := r.do("GET", path, "")
		return resp.StatusCode
	}
	ask := func() int {
		resp, _ := r.do("POST", "/v1/completions", `{"model":"m","prompt":"a","max_tokens":1}`)
		return resp.StatusCode
	}
	fail := func(body string) {
		t.Helper()
		if code, out := r.post("/fake/fail", body); code != 200 {
			t.Fatalf("%d %s", code, out)
		}
	}
	fail(`{"status":500,"count":2}`)
	if got := []int{ask(), status("/health"), status("/v1/models"), ask(), ask()}; !slices.Equal(got, []int{500, 200, 200, 500, 200}) {
		t.Errorf("two failures: %v", got)
	}
	fail(`{"status":503,"path":"/","delay":"1ms"}`)
	if got := []int{status("/v1/models"), status("/health")}; !slices.Equal(got, []int{503, 503}) {
		t.Errorf("all failing: %v", got)
	}
	if resp, _ := r.do("GET", "/health", "", "X-Fake-Delay", "1ms"); resp.StatusCode != 200 {
		t.Errorf("what a request asks for itself goes first: %d", resp.StatusCode)
	}
	r.post("/fake/reset", "")
	if got := status("/health"); got != 200 {
		t.Errorf("after reset: %d", got)
	}
	fail(`{"status":500,"for":"5ms"}`)
	r.eventually("over", func() bool { return ask() == 200 })
	r.client.Transport.(*http.Transport).DisableKeepAlives = true
	fail(`{"die_after":0,"path":"/health"}`)
	if _, err := r.send(t.Context(), "GET", "/health", ""); err == nil {
		t.Error("answered after it should have died")
	}
	fail(`{"hang":true,"path":"/metrics"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := r.send(ctx, "GET", "/metrics", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v", err)
	}
}

func TestMetrics(t *testing.T) {
	r := start(t, Options{LoRA: []string{"sql", "law"}, Speed: 1, CacheTokens: 64_000, Profile: sim.Profile70B})
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	clients.Go(func() {
		resp, err := r.send(ctx, "POST", "/v1/completions", `{"model":"sql","prompt":"x","stream":true,"max_tokens":60000,"ignore_eos":true}`)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
	r.answer("/v1/completions", `{"prompt":"abcdefgh","max_tokens":3}`)
	r.eventually("runs", func() bool {
		return r.metric(`vllm:lora_requests_info{max_lora="2",running_lora_adapters="sql",waiting_lora_adapters=""}`) > 1e9
	})
	r.eventually("has a token", func() bool { return r.metric("vllm:time_to_first_token_seconds_count") == 2 })
	base := `{engine="0",model_name="m"`
	for name, want := range map[string]float64{
		"vllm:num_requests_running" + base + "}":                                                                                   1,
		"vllm:num_requests_waiting" + base + "}":                                                                                   0,
		"vllm:prompt_tokens_total" + base + "}":                                                                                    3,
		"vllm:prefix_cache_queries_total" + base + "}":                                                                             3,
		"vllm:prefix_cache_hits_total" + base + "}":                                                                                0,
		"vllm:num_preemptions_total" + base + "}":                                                                                  0,
		"vllm:request_success_total" + base + `,finished_reason="length"}`:                                                         1,
		"vllm:request_success_total" + base + `,finished_reason="stop"}`:                                                           0,
		"vllm:request_success_total" + base + `,finished_reason="abort"}`:                                                          0,
		"vllm:time_to_first_token_seconds_bucket" + base + `,le="+Inf"}`:                                                           2,
		"vllm:time_to_first_token_seconds_bucket" + base + `,le="0.001"}`:                                                          0,
		"vllm:e2e_request_latency_seconds_count" + base + "}":                                                                      1,
		`vllm:cache_config_info{engine="0",block_size="16",cache_dtype="auto",enable_prefix_caching="True",num_gpu_blocks="4000"}`: 1,
	} {
		if got := r.metric(name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"vllm:kv_cache_usage_perc", "vllm:generation_tokens_total", "vllm:inter_token_latency_seconds_count", "vllm:time_to_first_token_seconds_sum"} {
		if got := r.metric(name + base); got <= 0 {
			t.Errorf("%s = %v, want more than 0", name, got)
		}
	}
	_, page := r.do("GET", "/metrics", "")
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "# HELP vllm:") && !strings.HasPrefix(line, "# TYPE vllm:") && !strings.HasPrefix(line, "vllm:") {
			t.Errorf("line %q", line)
		}
	}
}

// At its profile's speed the engine is never early: the model's time passes.
func TestRealTime(t *testing.T) {
	for _, speed := range []float64{1, 10} {
		r := start(t, Options{Speed: speed, Profile: sim.Profile70B})
		begin := time.Now()
		r.answer("/v1/completions", `{"prompt":"x","max_tokens":11}`)
		if took, model := time.Since(begin), time.Duration(11*float64(sim.Profile70B.Base)/speed); took < model {
			t.Errorf("speed %v: took %v, less than %v", speed, took, model)
		}
	}
}

// The tokens of a stream come one by one, the headers before them.
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

// The headers of a stream do not wait for its first token.
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

func TestManySmallRequests(t *testing.T) {
	r := start(t, Options{})
	const clients, each = 8, 100
	var wg sync.WaitGroup
	r.client.Transport.(*http.Transport).MaxIdleConnsPerHost = clients
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				stream := i%2 == 0
				resp, err := r.send(t.Context(), "POST", "/v1/chat/completions", fmt.Sprintf(`{"stream":%v,"max_tokens":16,"user":"%d",%s}`, stream, c, hello))
				if err != nil {
					t.Error(err)
					return
				}
				out, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || stream != bytes.HasSuffix(out, []byte("data: [DONE]\n\n")) {
					t.Errorf("%d %v %s", resp.StatusCode, err, out)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := r.metric(`vllm:request_success_total{engine="0",model_name="m",finished_reason="length"}`); got != clients*each {
		t.Errorf("%v finished", got)
	}
	if s := r.engine.Stats(); s.UsedBlocks != 0 || s.Running != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

func TestOptionsValidate(t *testing.T) {
	if err := (Options{}).Validate(); err != nil {
		t.Error(err)
	}
	for _, o := range []Options{{BlockSize: -1}, {CacheTokens: 8}, {Profile: sim.Profile{Name: "x"}}} {
		if o.Validate() == nil {
			t.Errorf("took %+v", o)
		}
	}
}

// FuzzRequest: whatever the body, decoding ends with a refusal or with prompts
// whose every token is one.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{` + hello + `}`, `{"prompt":"x","max_tokens":3,"stream":true,"n":2}`, `{"prompt":[[1,2],[3]]}`, `{"prompt":[1,-2]}`,
		`{"input":["a","b"]}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"},null,7]}]}`,
		`{"messages":[{"role":"a","content":null,"tool_calls":[{}]}],"tools":[{"x":"\ud800"}]}`, `{"messages":[}]`, `[[[[`, `{"a":"\u0000"}`, `null`, `"`, "{\"model\":\"\xff\"}",
		`{"max_tokens":1e9,"prompt":"x"}`, `{"stream_options":null,"prompt":"x"}`,
	} {
		f.Add([]byte(seed))
	}
	s := New(Options{MaxModelLen: 2000})
	defer s.Close()
	f.Fuzz(func(t *testing.T, body []byte) {
		r, refused := decodeRequest(body)
		if refused != nil {
			return
		}
		if tokens, refused := r.chatTokens(); refused == nil {
			s.newGeneration(r, chatDialect, [][]uint32{tokens})
		}
		for _, raw := range [][]byte{r.Prompt, r.Input} {
			if lists, refused := prompts("prompt", raw); refused == nil {
				if len(lists) == 0 {
					t.Fatal("no refusal and no prompt")
				}
				g, refused := s.newGeneration(r, textDialect, lists)
				if refused == nil && (len(g.seqs) != len(lists)*g.choices || len(g.seeds) != len(g.seqs)) {
					t.Fatalf("%d sequences for %d prompts", len(g.seqs), len(lists))
				}
			}
		}
	})
}
