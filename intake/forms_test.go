package intake

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/engine/tokenize"
)

// The same messages are other tokens in another API, and with another setting: what is
// known of one is not taken for the other. What follows an earlier response has no tokens.
func TestFormsHaveTokensOfTheirOwn(t *testing.T) {
	o := decider.TokenDefaults
	o.Timeout, o.OnUntokenized = time.Second, "reject"
	policy, err := policy.NewKVAware(o)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		n := map[string]int{"/tokenize": 48, "/v1/messages/render": 32, "/v1/responses/render": 64}[r.URL.Path]
		w.Write([]byte(`{"tokens":[1` + strings.Repeat(",2", n-1) + `]}`))
	}))
	defer s.Close()
	in := newIntake()
	in.Tokenizer = tokenize.New(metrics.NewSet())
	in.Apply(Config{Pools: []decider.PoolConfig{
		{Name: "exact", Models: []string{"m"}, Policy: policy, Replicas: []decider.ReplicaConfig{{Name: "r0", Address: strings.TrimPrefix(s.URL, "http://")}}},
	}})
	const hello = `"messages":[{"role":"user","content":"hello"}]`
	for range 2 { // at first from the engine, then from memory
		for i, c := range []struct {
			path, fields string
			tokens       int
		}{
			{chat, hello, 48}, {"/v1/messages", hello, 32}, {"/v1/responses", `"input":"hello"`, 64},
			{"/v1/messages", hello + `,"thinking":{"type":"disabled"}`, 32},
			{"/v1/messages", hello + `,"output_config":{"effort":"low"}`, 32},
			{"/v1/responses", `"input":"hello","reasoning":{"effort":"low"}`, 64},
			{"/v1/responses", `"input":"hello","previous_response_id":"resp_1"`, 0},
		} {
			var r Request
			b := []byte(`{"model":"m",` + c.fields + `}`)
			if !in.Read(&r, Input{Path: []byte(c.path), Body: b, BodySize: len(b)}) || !in.Prepare(&r) || r.ExactTokens != c.tokens {
				t.Errorf("%d: %+v, %+v", i, r.Request, r.Decision)
			}
		}
	}
	if asked != 6 {
		t.Errorf("asked %d times, want 6", asked)
	}
}

// Requests that only count tokens compute nothing: they are no load, charge nothing, and
// leave nothing in a cache.
func TestCountingTokensIsNoLoad(t *testing.T) {
	in := newIntake()
	in.Apply(Config{Pools: []decider.PoolConfig{pool("llama", "m")}})
	b := body("m", 40_000)
	for path, computes := range map[string]bool{
		"/v1/messages": true, "/v1/messages/count_tokens": false, chat: true, chat + "/render": false, "/tokenize": false, "/v1/responses/input_tokens": false,
	} {
		for _, size := range []int{len(b), 10 * len(b)} { // whole, and cut
			var r Request
			if !in.Read(&r, Input{Path: []byte(path), Body: b, BodySize: size}) {
				t.Fatalf("%s: %+v", path, r.Decision)
			}
			if (r.Input > 0) != computes || (r.billed() > 0) != computes || (len(r.Blocks) > 0) != computes || !computes && (r.Output != 1 || len(r.TextBlocks) > 0 || r.TextBytes > 0) {
				t.Errorf("%s, %d bytes: %d tokens, %d billed, %d blocks, %d of output", path, size, r.Input, r.billed(), len(r.Blocks), r.Output)
			}
		}
	}
}
