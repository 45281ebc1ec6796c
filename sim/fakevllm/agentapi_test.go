package fakevllm

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/bytedance/sonic"
)

// events reads a stream of named events.
func (r *replica) events(path, body string) (names []string, data []map[string]any) {
	r.Helper()
	resp, err := r.send(context.Background(), "POST", path, body)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			names = append(names, name)
		}
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var fields map[string]any
			if err := sonic.UnmarshalString(text, &fields); err != nil {
				r.Fatalf("%v in %s", err, text)
			}
			data = append(data, fields)
		}
	}
	if len(names) != len(data) || lines.Err() != nil {
		r.Fatalf("%v, %d names, %d data", lines.Err(), len(names), len(data))
	}
	for i, name := range names {
		if data[i]["type"] != name {
			r.Errorf("event %s has type %v", name, data[i]["type"])
		}
	}
	return names, data
}

func (r *replica) object(path, body string, want int) map[string]any {
	r.Helper()
	resp, err := r.send(context.Background(), "POST", path, body)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var fields map[string]any
	if err != nil || sonic.Unmarshal(text, &fields) != nil || resp.StatusCode != want {
		r.Fatalf("%d %v %s", resp.StatusCode, err, text)
	}
	return fields
}

func TestMessages(t *testing.T) {
	r := start(t, Options{})
	const body = `{"model":"m","max_tokens":3,"system":[{"type":"text","text":"be brief"}],"messages":[{"role":"user","content":[{"type":"text","text":"one"},{"type":"tool_result","tool_use_id":"t","content":"two"}]}]`
	whole := r.object("/v1/messages", body+"}", 200)
	usage := whole["usage"].(map[string]any)
	text := whole["content"].([]any)[0].(map[string]any)["text"].(string)
	if whole["type"] != "message" || whole["stop_reason"] != "max_tokens" || usage["output_tokens"] != 3.0 || !strings.HasPrefix(text, "r1: ") {
		t.Errorf("%v", whole)
	}
	names, data := r.events("/v1/messages", body+`,"stream":true}`)
	streamed := ""
	for _, d := range data {
		if delta, ok := d["delta"].(map[string]any); ok && delta["type"] == "text_delta" {
			streamed += delta["text"].(string)
		}
	}
	if got := strings.Join(names, " "); streamed != text || got != "message_start content_block_start content_block_delta content_block_delta content_block_delta content_block_stop message_delta message_stop" {
		t.Errorf("%q streamed by %s, want %q", streamed, got, text)
	}
	for _, c := range []struct {
		body   string
		status int
		kind   string
	}{{`{"model":"m","messages":[]}`, 400, "invalid_request_error"}, {`{"model":"no","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, 404, "not_found_error"}, {`[`, 400, "invalid_request_error"}} {
		e := r.object("/v1/messages", c.body, c.status)
		if e["type"] != "error" || e["error"].(map[string]any)["type"] != c.kind {
			t.Errorf("%s: %v", c.body, e)
		}
	}
}

func TestResponses(t *testing.T) {
	r := start(t, Options{})
	const body = `{"model":"m","max_output_tokens":3,"instructions":"be brief","input":[{"role":"user","content":[{"type":"input_text","text":"one"}]},{"type":"function_call_output","call_id":"c","output":"two"}]`
	whole := r.object("/v1/responses", body+"}", 200)
	text := whole["output"].([]any)[0].(map[string]any)["content"].([]any)[0].(map[string]any)["text"].(string)
	if whole["object"] != "response" || whole["status"] != "completed" || !strings.HasPrefix(text, "r1: ") || whole["usage"].(map[string]any)["output_tokens"] != 3.0 {
		t.Errorf("%v", whole)
	}
	names, data := r.events("/v1/responses", body+`,"stream":true}`)
	last := data[len(data)-1]
	if names[0] != "response.created" || names[len(names)-1] != "response.completed" || last["sequence_number"] != float64(len(data)-1) || len(names) != 9 {
		t.Errorf("%v", names)
	}
	if e := r.object("/v1/responses", `{"model":"m"}`, 400); e["error"].(map[string]any)["message"] == "" {
		t.Errorf("%v", e)
	}
}

// A core that dies ends a stream in the form of its API, and fails what comes next.
func TestCoreDies(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/chat/completions": "data: [DONE]", "/v1/messages": "event: error", "/v1/responses": "event: error",
	} {
		r := start(t, Options{Speed: 1})
		body := `{"model":"m","stream":true,"ignore_eos":true,"max_tokens":60000,"max_output_tokens":60000,"input":"x","messages":[{"role":"user","content":"x"}]}`
		resp, err := r.send(context.Background(), "POST", path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.object("/fake/fail", `{"core":true}`, 200)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(text[max(0, len(text)-400):]), want) || !strings.Contains(string(text), `"error"`) {
			t.Errorf("%s ends with %v ...%s", path, err, text[max(0, len(text)-300):])
		}
		r.object(path, body, 500)
		health, err := r.send(context.Background(), "GET", "/health", "")
		if err != nil || health.StatusCode != 503 {
			t.Error(health, err)
		}
		health.Body.Close()
		r.object("/fake/reset", ``, 200)
		r.object(path, strings.Replace(strings.ReplaceAll(body, "60000", "2"), `"stream":true,`, "", 1), 200)
	}
}
