package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestCodingAgents has coding agents send what they send, without any change of
// theirs: each conversation stays on one replica, in the APIs of OpenAI and Anthropic,
// streamed and not, and refusals have the form of the client's API.
func TestCodingAgents(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 4, "session")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		body := func(model string, stream bool, fields string) []byte {
			return fmt.Appendf(nil, `{"model":%q,"stream":%v,"max_tokens":3,"max_output_tokens":3,"input":"hello","messages":[{"role":"user","content":"hello"}]%s}`, model, stream, fields)
		}
		used := map[string]bool{}
		for i := range 12 {
			for _, c := range []struct{ path, header, fields, end string }{
				{"/v1/messages", "X-Claude-Code-Session-Id", ``, "message_stop"},
				{"/v1/messages", "", `,"metadata":{"user_id":"user_1_session_%d"}`, "message_stop"},
				{"/v1/responses", "Session-Id", ``, "response.completed"},
				{"/v1/responses", "", `,"prompt_cache_key":"conversation %d"`, "response.completed"},
				{"/v1/chat/completions", "X-Session-Affinity", ``, "[DONE]"},
			} {
				fields := c.fields
				if fields != "" {
					fields = fmt.Sprintf(fields, i)
				}
				call := rig.Call{Path: c.path, Body: body(rig.Model, true, fields), Header: map[string]string{}}
				if c.header != "" {
					call.Header[c.header] = fmt.Sprint("conversation ", i)
				}
				first := call.Do(client, s.Front)
				call.Body = body(rig.Model, false, fields)
				again := call.Do(client, s.Front)
				if first.Status != 200 || again.Status != 200 || first.Engine != again.Engine || !bytes.Contains(first.Body, []byte(c.end)) || !json.Valid(again.Body) {
					t.Fatalf("%s %s: %d by %s, then %d by %s: %s %s", c.path, c.header+fields, first.Status, first.Engine, again.Status, again.Engine, first.Body, again.Body)
				}
				used[first.Engine] = true
			}
		}
		if len(used) != 4 {
			t.Errorf("all sessions are on %v", used)
		}
		for path, want := range map[string]string{
			"/v1/messages":              `{"type":"error","error":{"type":"not_found_error","message":"The model 'nobody' does not exist."}}`,
			"/v1/messages/count_tokens": `{"type":"error","error":{"type":"not_found_error","message":"The model 'nobody' does not exist."}}`,
			"/v1/responses":             `{"error":{"message":"The model 'nobody' does not exist.","type":"invalid_request_error","param":"model","code":"model_not_found"}}`,
		} {
			a := rig.Call{Path: path, Body: body("nobody", true, "")}.Do(client, s.Front)
			if a.Status != 404 || string(a.Body) != want || a.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %s", path, a.Status, a.Body)
			}
		}

		// To count tokens is no load: no prompt is computed.
		before := s.Agent.Settled(rig.Pool)
		tokens := s.Agent.Metrics()[`pointsman_prompt_tokens_total{pool="`+rig.Pool+`"}`]
		for range 3 {
			a := rig.Call{Path: "/v1/messages/count_tokens", Body: body(rig.Model, false, "")}.Do(client, s.Front)
			if a.Status != 200 || !bytes.Contains(a.Body, []byte(`{"input_tokens":`)) {
				t.Errorf("count_tokens: %d %s", a.Status, a.Body)
			}
		}
		rig.Eventually(t, 10*time.Second, "the counts have ended", func() (bool, string) {
			p := s.Agent.Settled(rig.Pool)
			return p.Outcomes["served"] == before.Outcomes["served"]+3, fmt.Sprintf("%+v", p)
		})
		if now := s.Agent.Metrics()[`pointsman_prompt_tokens_total{pool="`+rig.Pool+`"}`]; now != tokens || tokens == 0 {
			t.Errorf("%v tokens of prompts, %v before the counts", now, tokens)
		}
	})
}
