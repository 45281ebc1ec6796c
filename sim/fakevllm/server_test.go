package fakevllm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bytedance/sonic"

	"pointsman/sim"
)

func TestModels(t *testing.T) {
	r := start(t, Options{LoRA: []string{"sql"}})
	_, out := r.do(http.MethodGet, "/v1/models", "")
	want := `{"object":"list","data":[` +
		`{"id":"m","object":"model","created":NOW,"owned_by":"vllm","root":"m","parent":null,"max_model_len":131072},` +
		`{"id":"alias","object":"model","created":NOW,"owned_by":"vllm","root":"m","parent":null,"max_model_len":131072},` +
		`{"id":"sql","object":"model","created":NOW,"owned_by":"vllm","root":"sql","parent":"m","max_model_len":null}]}`
	if got := strings.ReplaceAll(out, strconv.FormatInt(r.engine.started.Unix(), 10), "NOW"); got != want {
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
	if s := r.Stats(); s.QueryTokens != 0 {
		t.Errorf("the engine worked: %+v", s)
	}
}

func TestReportsWhatItReceived(t *testing.T) {
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

// rawRequest writes text to a connection, closes its sending side, and returns
// the status of the answer.
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
		t.Error("an aborted stream ended without an error")
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
	if s := r.Stats(); s.UsedBlocks != 0 || s.Running != 0 {
		t.Errorf("not idle: %+v", s)
	}
}

func TestOptionsValidate(t *testing.T) {
	if err := (Options{}).Validate(); err != nil {
		t.Error(err)
	}
	for _, o := range []Options{{BlockSize: -1}, {CacheTokens: 8}, {Profile: sim.Profile{Name: "x"}}} {
		if o.Validate() == nil {
			t.Errorf("accepted %+v", o)
		}
	}
}

// FuzzRequest: decoding any body ends with an error or with at least one prompt.
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

// TestServe runs until the context is done, and reports sockets that it cannot
// open.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, Options{Name: "served"}) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("X-Engine"); got != "served" {
		t.Errorf("engine %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()

	if err := Serve(t.Context(), l, Options{}); err == nil {
		t.Error("served on a closed listener")
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), l, Options{Events: "tcp://127.0.0.1:99999"}); err == nil {
		t.Error("served without its event socket")
	}
}
