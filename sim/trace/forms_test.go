package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// forms are files of each form.
var forms = []string{recorded, liteLLM, liteLLMRows, vllm, vllmDebug, vllm32}

// What pointsman record writes.
const recorded = `{"recorder":"pointsman","form":1,"time":"2026-11-22T05:00:00Z","pools":[{"name":"chat","policy":"session","replicas":3,"cache_tokens":90000}]}
{"timestamp":1764000001500,"input_length":700,"output_length":40,"max_tokens":50,"pool":"chat","model":"m","session":"0a41f02c7711d3","stream":true,"outcome":"served","status":200,"ttft":0.2500,"duration":1.2,"block_tokens":240,"hash_ids":[11,12]}
{"timestamp":1764000000000,"input_length":300,"output_length":20,"pool":"chat","session":"0a41f02c7711d3","tenant":"0c","band":"interactive","stream":true,"outcome":"served","status":200,"ttft":0.1,"duration":0.5,"block_tokens":250,"hash_ids":[11]}

{"timestamp":1764000002000,"input_length":2400,"pool":"chat","stream":false,"cut":true,"outcome":"died","status":502,"duration":9,"block_tokens":240,"hash_ids":[21,22]}
{"timestamp":1764000003000,"input_length":9,"pool":"chat","stream":true,"outcome":"shed","status":429,"duration":0,"block_tokens":240,"hash_ids":[]}
{"timestamp":1764000004000,"input_length":9,"pool":"chat","stream":true,"outcome":"served","status":400,"ttft":0.001,"duration":0,"block_tokens":240,"hash_ids":[]}
`

func TestReadRecording(t *testing.T) {
	trace := mustRead(t, recorded, Options{})
	if len(trace.Requests) != 4 || trace.BlockTokens != 240 || trace.Tick != 0 {
		t.Fatalf("%+v", trace)
	}
	first, second, cut, shed := trace.Requests[0], trace.Requests[1], trace.Requests[2], trace.Requests[3]
	if first.Input != 300 || first.Output != 20 || first.MaxTokens != 0 || second.At != 1500*time.Millisecond || second.MaxTokens != 50 || !second.HasSession ||
		second.Session != first.Session || first.Tenant == 0 || !slices.Equal(first.Blocks, second.Blocks[:1]) {
		t.Errorf("%+v\n%+v", first, second)
	}
	if cut.Stream || cut.HasSession || cut.Output != 40 || !cut.Truncated || len(cut.Visible) != 2 || len(cut.Blocks) != 10 || !slices.Equal(cut.Visible, cut.Blocks[:2]) {
		t.Errorf("cut %+v", cut)
	}
	if shed.Output != 40 || shed.Input != 9 {
		t.Errorf("shed %+v", shed)
	}
	r := trace.Recorded
	if r == nil || r.Policy != "session" || r.Shadow || r.Replicas != 3 || r.CacheTokens != 90000 || r.Served != 2 || r.Unserved != 1 || r.Shed != 1 ||
		!slices.Equal(r.TTFT, []time.Duration{100 * time.Millisecond, 250 * time.Millisecond}) {
		t.Errorf("recorded %+v", r)
	}
	if rate := trace.Rate(); rate != 4.0/3 {
		t.Errorf("rate %v", rate)
	}
	if len(trace.Notes) != 1 || !strings.Contains(trace.Notes[0], "left out") {
		t.Errorf("notes %q", trace.Notes)
	}
}

// A recording of several pools wants one of them, and a newer form is refused.
func TestReadRecordingOfPools(t *testing.T) {
	two := recorded + `{"timestamp":1764000009000,"input_length":77,"pool":"code","stream":true,"outcome":"served","duration":1,"block_tokens":200,"hash_ids":[]}` + "\n"
	if _, err := Read(strings.NewReader(two), Options{}); err == nil || err.Error() != "trace: want --pool with one of the recorded pools: chat (4 requests), code (1 requests)" {
		t.Error(err)
	}
	if trace := mustRead(t, two, Options{Pool: "code"}); len(trace.Requests) != 1 || trace.Requests[0].Input != 77 || trace.BlockTokens != 200 || trace.Recorded.Policy != "" {
		t.Errorf("%+v", trace)
	}
	if _, err := Read(strings.NewReader(`{"recorder":"pointsman","form":2,"pools":[]}`), Options{}); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Error(err)
	}
	if _, err := Read(strings.NewReader(`{"recorder":"pointsman","form":1,"pools":[]}`), Options{}); err == nil || err.Error() != "trace: a recording without any requests: none has ended while it ran" {
		t.Error(err)
	}
	if _, err := Read(strings.NewReader(`{"input_length":1}`), Options{Pool: "chat"}); err == nil || !strings.Contains(err.Error(), "this is none") {
		t.Error(err)
	}
}

func compressed(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Compressed files are read, in one piece or several, and as far as they go.
func TestReadCompressed(t *testing.T) {
	whole := mustRead(t, string(compressed([]byte(recorded))), Options{})
	if len(whole.Requests) != 4 {
		t.Errorf("%+v", whole)
	}
	half := strings.Index(recorded, "\n\n") + 1
	pieces := append(compressed([]byte(recorded[:half])), compressed([]byte(recorded[half:]))...)
	if trace := mustRead(t, string(pieces), Options{}); len(trace.Requests) != 4 || len(trace.Notes) != 1 {
		t.Errorf("in pieces: %+v", trace)
	}
	cut := mustRead(t, string(pieces[:len(pieces)-20]), Options{})
	if len(cut.Requests) < 2 || !slices.ContainsFunc(cut.Notes, func(n string) bool { return strings.Contains(n, "ends early") }) {
		t.Errorf("cut: %+v", cut)
	}
	if _, err := Read(strings.NewReader("\x1f\x8bnonsense"), Options{}); err == nil || !strings.Contains(err.Error(), "gzip") {
		t.Error(err)
	}
}

// Dates and numbers of all usual units mean the same times.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		name, one, two string
		gap            time.Duration
	}{
		{"ms", "1764000000000", "1764000001500", 1500 * time.Millisecond},
		{"s", "1764000000", "1764000001.5", 1500 * time.Millisecond},
		{"µs", "1764000000000000", "1764000001500000", 1500 * time.Millisecond},
		{"ns", "1764000000000000000", "1764000001500000000", 1500 * time.Millisecond},
		{"ISO", `"2026-11-22T05:00:00Z"`, `"2026-11-22T06:00:01.500+01:00"`, 1500 * time.Millisecond},
		{"a date with a space", `"2026-11-22 05:00:00"`, `"2026-11-22 05:00:01.500000"`, 1500 * time.Millisecond},
		{"a number in a string", `"1764000000.0"`, `"1764000001.5"`, 1500 * time.Millisecond},
		{"relative ms", "0", "27000", 27 * time.Second},
		{"relative s with fractions", "0.0", "1.5", 1500 * time.Millisecond},
	} {
		trace := mustRead(t, fmt.Sprintf(`{"timestamp":%s,"input_length":1}`+"\n"+`{"timestamp":%s,"input_length":2}`, c.one, c.two), Options{})
		if got := trace.Requests[1].At; got < c.gap-time.Millisecond || got > c.gap+time.Millisecond {
			t.Errorf("%s: %v, want %v", c.name, got, c.gap)
		}
	}
	// Whole seconds: as milliseconds they would be thousands of requests a second.
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `{"timestamp":%d,"input_length":1}`+"\n", i/5)
	}
	if span := mustRead(t, b.String(), Options{}).Span(); span != 199*time.Second {
		t.Errorf("whole seconds: %v", span)
	}
}

// Requests as LiteLLM hands them to callbacks, and as its database has them.
const (
	liteLLM = `{"id":"a","trace_id":"t1","call_type":"acompletion","status":"success","prompt_tokens":310,"completion_tokens":44,"total_tokens":354,"startTime":1764000000.25,"endTime":1764000003.5,"completionStartTime":1764000000.75,"model":"m","messages":[{"role":"user","content":"LONG"}],"model_parameters":{"stream":true,"max_tokens":100},"metadata":{"user_api_key_alias":"x"}}
{"id":"b","trace_id":"t1","call_type":"acompletion","status":"success","prompt_tokens":400,"completion_tokens":10,"startTime":1764000005.25,"endTime":1764000006,"model":"m","messages":[{"role":"user","content":"LONG"},{"role":"assistant","content":"So."}],"stream":null,"model_parameters":{}}
{"id":"c","trace_id":"t2","call_type":"acompletion","status":"failure","prompt_tokens":0,"completion_tokens":0,"startTime":1764000006,"endTime":1764000006,"messages":null}
{"id":"d","trace_id":"t3","call_type":"amoderation","status":"success","prompt_tokens":0,"completion_tokens":0,"startTime":1764000006,"endTime":1764000006}
`
	liteLLMRows = `[{"request_id":"a","call_type":"acompletion","prompt_tokens":310,"completion_tokens":44,"startTime":"2026-11-22T05:00:00.250Z","endTime":"2026-11-22T05:00:03Z","session_id":"u1","messages":{},"response":{}},
 {"request_id":"b","call_type":"acompletion","prompt_tokens":20,"completion_tokens":1,"startTime":"2026-11-22T05:00:10.250Z","endTime":"2026-11-22T05:00:11Z","session_id":"u2","messages":"[{\"role\":\"user\",\"content\":\"hi\"}]"}]`
)

var long = strings.Repeat("All work and no play makes a dull replica. ", 40) // 1,720 bytes

func TestReadLiteLLM(t *testing.T) {
	trace := mustRead(t, strings.ReplaceAll(liteLLM, "LONG", long), Options{})
	if len(trace.Requests) != 2 || len(trace.Notes) != 1 {
		t.Fatalf("%+v", trace)
	}
	a, b := trace.Requests[0], trace.Requests[1]
	if a.Input != 310 || a.Output != 44 || !a.Stream || a.MaxTokens != 100 || len(a.Blocks) != 1 || !a.HasSession {
		t.Errorf("%+v", a)
	}
	if b.At != 5*time.Second || b.Stream || b.Session != a.Session || !slices.Equal(a.Blocks, b.Blocks[:1]) {
		t.Errorf("%+v", b)
	}
	rows := mustRead(t, liteLLMRows, Options{})
	if len(rows.Requests) != 2 || rows.Requests[1].At != 10*time.Second || rows.Requests[0].HasSession || len(rows.Requests[0].Blocks) != 0 || len(rows.Notes) != 1 {
		t.Errorf("rows %+v", rows)
	}
	if _, err := Read(strings.NewReader(`{"prompt_tokens":-1,"completion_tokens":1,"startTime":1}`), Options{}); err == nil || !strings.Contains(err.Error(), `prompt_tokens "-1"`) {
		t.Error(err)
	}
}

// Lines of vLLM's log, with the prompt in the line of the request, and before it.
const (
	vllm = `INFO 12-31 23:59:58 [api_server.py:1037] Starting vLLM API server
INFO 12-31 23:59:58 [logger.py:41] Received request chatcmpl-1: prompt: '<|user|>It\'s a "test": LONG, params: SamplingParams(max_tokens=9)\n', params: SamplingParams(n=1, temperature=1.0, max_tokens=100, truncate_prompt_tokens=None), prompt_token_ids: None, prompt_embeds shape: None, lora_request: None.
(APIServer pid=7) INFO 12-31 23:59:59 [logger.py:41] Received request cmpl-2: prompt: None, params: SamplingParams(n=1, max_tokens=130000), prompt_token_ids: [1, 2, 3, 4, 5], prompt_embeds shape: None, lora_request: None.
INFO 01-01 00:00:03 [logger.py:71] Generated response chatcmpl-1 (streaming complete): output: 'twelve bytes', output_token_ids: None, finish_reason: stop
INFO 01-01 00:00:03 [logger.py:71] Generated response cmpl-2: output: 'x', output_token_ids: [7, 8, 9, 10], finish_reason: stop
INFO 01-01 00:00:04 [logger.py:41] Received request pool-3: prompt: 'short', params: PoolingParams(dimensions=None), prompt_token_ids: [1, 2], lora_request: None.
INFO 01-01 00:00:05 [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s
`
	vllmDebug = `DEBUG 11-22 05:00:00 [logger.py:40] Request chatcmpl-1 details: prompt: "Received request chatcmpl-9: prompt: 'x'", prompt_token_ids: [1, 2, 3], prompt_embeds shape: None.
INFO 11-22 05:00:00 [logger.py:49] Received request chatcmpl-1: params: SamplingParams(n=1, max_tokens=20), lora_request: None.
INFO 11-22 05:00:02 [logger.py:49] Received request chatcmpl-2: params: SamplingParams(n=1, max_tokens=20), lora_request: None.
`
)

// Lines of vLLM 0.32, with --log-level DEBUG and --enable-log-outputs. Its answers have
// their tokens in a line of their own.
const vllm32 = `(APIServer pid=9) DEBUG 11-22 08:10:14 [serve/utils/request_logger.py:77] Request chatcmpl-1 JSON body: {"messages":[{"role":"user","content":"Received request chatcmpl-7: params"}],"model":"m"}
(APIServer pid=9) DEBUG 11-22 08:10:14 [serve/utils/request_logger.py:55] Request chatcmpl-1 details: prompt: None, prompt_token_ids: [1, 2, 3, 4], prompt_embeds shape: None.
(APIServer pid=9) INFO 11-22 08:10:14 [serve/utils/request_logger.py:65] Received request chatcmpl-1: params: SamplingParams(n=1, presence_penalty=0.0, seed=None, stop=['\\n\\n'], max_tokens=100, min_tokens=0), lora_request: None.
(APIServer pid=9) DEBUG 11-22 08:10:15 [serve/utils/request_logger.py:101] Generated response chatcmpl-1 details: output_token_ids: [5, 6, 7]
(APIServer pid=9) INFO 11-22 08:10:15 [serve/utils/request_logger.py:108] Generated response chatcmpl-1: output: 'one answer of many words, and of three tokens', finish_reason: stop
(APIServer pid=9) DEBUG 11-22 08:10:16 [serve/utils/request_logger.py:55] Request chatcmpl-2 details: prompt: 'caf\xe9 \u2603', prompt_token_ids: [1, 2], prompt_embeds shape: None.
(APIServer pid=9) INFO 11-22 08:10:16 [serve/utils/request_logger.py:65] Received request chatcmpl-2: params: SamplingParams(n=1, max_tokens=7), lora_request: None.
(APIServer pid=9) DEBUG 11-22 08:10:16 [serve/utils/request_logger.py:101] Generated response chatcmpl-2 (streaming delta) details: output_token_ids: [5]
(APIServer pid=9) INFO 11-22 08:10:16 [serve/utils/request_logger.py:108] Generated response chatcmpl-2 (streaming delta): output: 'tw', finish_reason: None
(APIServer pid=9) DEBUG 11-22 08:10:17 [serve/utils/request_logger.py:101] Generated response chatcmpl-2 (streaming complete) details: output_token_ids: None
(APIServer pid=9) INFO 11-22 08:10:17 [serve/utils/request_logger.py:108] Generated response chatcmpl-2 (streaming complete): output: 'twelve bytes', finish_reason: streaming_complete
`

func TestReadVLLM32(t *testing.T) {
	trace := mustRead(t, vllm32, Options{})
	if len(trace.Requests) != 2 {
		t.Fatalf("%+v", trace)
	}
	whole, streamed := trace.Requests[0], trace.Requests[1]
	if whole.Input != 4 || whole.Output != 3 || whole.MaxTokens != 100 || streamed.At != 2*time.Second || streamed.Input != 2 || streamed.Output != 3 || streamed.MaxTokens != 7 {
		t.Errorf("%+v\n%+v", whole, streamed)
	}
}

// testdata/litellm.jsonl.gz is what LiteLLM 1.106.2 hands to a callback, before two
// engines: two conversations, streamed and not, a completion, a response, and a request
// that failed.
func TestReadLiteLLMPayloads(t *testing.T) {
	trace, err := ReadFile("testdata/litellm.jsonl.gz", Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := trace.Requests
	if len(r) != 6 || len(trace.Notes) != 1 {
		t.Fatalf("%d requests, %q", len(r), trace.Notes)
	}
	for i, want := range []struct {
		stream      bool
		output, max int
	}{{true, 21, 21}, {false, 21, 21}, {true, 22, 22}, {false, 22, 22}, {false, 5, 5}, {false, 16, 16}} {
		if r[i].Stream != want.stream || r[i].Output != want.output || r[i].MaxTokens != want.max || i > 0 && r[i].At <= r[i-1].At {
			t.Errorf("request %d: %+v, want %+v", i, r[i], want)
		}
	}
	if r[0].Input < 400 || len(r[0].Blocks) < 1 || !slices.Equal(r[0].Blocks, r[2].Blocks) || r[0].Session != r[1].Session || r[2].Session != r[3].Session || r[0].Session == r[2].Session {
		t.Errorf("conversations: %+v", r[:4])
	}
}

func TestReadVLLM(t *testing.T) {
	trace := mustRead(t, strings.ReplaceAll(vllm, "LONG", long), Options{})
	if len(trace.Requests) != 3 {
		t.Fatalf("%+v", trace)
	}
	text, tokens, pooling := trace.Requests[0], trace.Requests[1], trace.Requests[2]
	if want := (len(long) + 60) / 4; text.Input < want-10 || text.Input > want+10 || len(text.Blocks) != 1 || text.MaxTokens != 100 || text.Output != 3 {
		t.Errorf("text %+v", text)
	}
	if tokens.At != time.Second || tokens.Input != 5 || tokens.Output != 4 || tokens.MaxTokens != 0 {
		t.Errorf("tokens %+v", tokens)
	}
	if pooling.At != 6*time.Second || pooling.Output != 1 || pooling.Stream {
		t.Errorf("pooling, after the year's end: %+v", pooling)
	}
	debug := mustRead(t, vllmDebug, Options{})
	if len(debug.Requests) != 1 || debug.Requests[0].Input != 3 || debug.Requests[0].Output != 20 {
		t.Errorf("%+v", debug)
	}
	_, without, _ := strings.Cut(vllmDebug, "\n")
	if _, err := Read(strings.NewReader(without), Options{}); err == nil || !strings.Contains(err.Error(), "2 requests and without their prompts: from version 0.11 on it has them with VLLM_LOGGING_LEVEL=DEBUG only") {
		t.Error(err)
	}
}
