package engines

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// agents sends what coding agents send in their own APIs. The agent counts as many tokens
// as the engine, which makes chats of these bodies.
func agents(t *testing.T, s *rig.Site, c *http.Client) {
	const (
		schema = `{"type":"object","properties":{"path":{"type":"string"}}}`
		calls  = `{"role":"user","content":"read it"},
			{"role":"assistant","content":[{"type":"thinking","thinking":"I look","signature":"x"},{"type":"text","text":"Reading."},{"type":"tool_use","id":"t1","name":"read","input":{"path": "a.go"}},{"type":"tool_use","id":"t2","name":"list","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"package a"},{"type":"text","text":"end"}]},{"type":"tool_result","tool_use_id":"t2","content":"none"},{"type":"text","text":"go on"}]}`
		items = `{"type":"message","role":"developer","content":[{"type":"input_text","text":"be quick"},{"type":"input_text","text":"and kind"}]},{"role":"user","content":"read it"},
			{"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"I look"}]},
			{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Reading."}]},
			{"type":"function_call","call_id":"c1","name":"read","arguments":"{\"path\":\"a.go\"}"},
			{"type":"function_call","call_id":"c2","name":"list","arguments":"{}"},
			{"type":"function_call_output","call_id":"c1","output":"package a"},
			{"type":"function_call_output","call_id":"c2","output":"none"},{"role":"user","content":[{"type":"input_text","text":"go on"}]}`
	)
	count := newCounted(s)
	send := func(path, limit, fields string) (usage, seen) {
		t.Helper()
		a := rig.Call{Path: path, Body: fmt.Appendf(nil, `{"model":%q,%q:2,%s}`, rig.Model, limit, fields)}.Do(c, s.Front)
		return usageOf(t, a), count.next(t)
	}
	for _, body := range []string{
		`"messages":[{"role":"user","content":"hello there"}]`,
		`"system":"be brief","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":"c"},{"role":"user","content":"d"}]`,
		`"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=abcde;"},{"type":"text","text":"be brief"}],"messages":[` + calls + `],"tools":[{"name":"read","description":"reads","input_schema":` + schema + `},{"name":"list","input_schema":{"properties":{}}}],"tool_choice":{"type":"none"}`,
		`"system":"be brief","messages":[{"role":"user","content":"hello"},{"role":"system","content":"a reminder"},{"role":"user","content":"go on"}]`,
		`"messages":[{"role":"user","content":"hello"}],"thinking":{"type":"disabled"}`,
		`"messages":[{"role":"user","content":"hello"}],"output_config":{"effort":"high"}`,
		`"messages":[{"role":"user","content":"hello"}],"chat_template_kwargs":{"style":"as a pirate does"}`,
		`"input":"hello there"`,
		`"instructions":"be brief","input":[` + items + `],"tools":[{"type":"function","name":"read","description":"reads","parameters":` + schema + `,"strict":true},{"type":"function","name":"list","parameters":{"type":"object"}}],"tool_choice":"none"`,
		`"input":[{"role":"user","content":"hello"}],"reasoning":{"effort":"low"}`,
		`"input":[{"role":"user","content":"hello"},{"type":"message","role":"assistant","status":"incomplete","id":"m","content":[{"type":"output_text","text":"Hel","annotations":[]}]}]`,
	} {
		path, limit := "/v1/messages", "max_tokens"
		if strings.Contains(body, `"input":`) && !strings.Contains(body, `"messages"`) {
			path, limit = "/v1/responses", "max_output_tokens"
		}
		for range 2 { // the first may have come too late, or had the engine count too
			if u, got := send(path, limit, body); !got.late && (!got.exact || got.tokens != u.prompt()) {
				t.Errorf("%s %s: the agent has %+v, the engine %d tokens", path, body, got, u.prompt())
			}
		}
	}

	// What an engine has cached of them is known by its events.
	long := strings.Repeat("a line of a file ", 60)
	for path, fields := range map[string][2]string{
		"/v1/messages":  {"max_tokens", `"system":"` + long + `","messages":[{"role":"user","content":"hello"}]`},
		"/v1/responses": {"max_output_tokens", `"instructions":"` + long + `","input":[{"role":"user","content":"hello"}]`},
	} {
		rig.Eventually(t, time.Minute, "what is cached is known", func() (bool, string) {
			u, got := send(path, fields[0], fields[1])
			cached := u.Read + u.InputDetails.Cached
			return cached >= 4*vllmBlock && got.cached >= cached-vllmBlock && got.cached <= cached+vllmBlock, fmt.Sprintf("%s: %+v, %+v", path, u, got)
		})
	}
}
