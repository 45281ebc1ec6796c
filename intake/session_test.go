package intake

import (
	"fmt"
	"testing"

	"pointsman/decider"
	"pointsman/session"
)

// A session is found where agents name it: headers first, then the body's fields in
// their order.
func TestSessionsOfAgents(t *testing.T) {
	in := newIntake()
	in.Apply(Config{
		Session: session.NewHeaders([]string{"x-session-id", "x-claude-code-session-id", "x-session-affinity", "session-id"}),
		SessionFields: []SessionField{
			SessionFieldOf("metadata.session_id"), SessionFieldOf("conversation"), SessionFieldOf("prompt_cache_key"), SessionFieldOf("metadata.user_id"),
		},
		Pools: []decider.PoolConfig{pool("llama", "m")},
	})
	for _, c := range []struct{ headers, body, want string }{
		{"X-Claude-Code-Session-Id: c\r\n", `"metadata":{"session_id":"m"}`, "c"},
		{"session_id: under\r\nX-Session-Affinity: open\r\n", ``, "open"},
		{"session_id: under\r\n", ``, "under"},
		{"session-id:\r\n", `"prompt_cache_key":"k"`, "k"},
		{"", `"prompt_cache_key":"k","conversation":"conv_1","metadata":{"user_id":"u","session_id":"m","x":{"session_id":"no"}}`, "m"},
		{"", `"prompt_cache_key":"k","conversation":{"id":"conv_1","x":[1]}`, "conv_1"},
		{"", `"metadata":{"x":1,"user_id":"user_1_session_\u0032"},"prompt_cache_key":7`, "user_1_session_2"},
		{"", `"metadata":"text","conversation":null,"user":"joe"`, ""},
		{"", `"metadata":{"session_id":""}`, ""},
		{"", `"previous_response_id":"resp_1"`, "resp_1"},
	} {
		body := `{"model":"m","input":"hello"`
		if c.body != "" {
			body += "," + c.body
		}
		var r Request
		if !in.Read(&r, Input{Path: []byte("/v1/responses"), Headers: []byte(c.headers), Body: []byte(body + "}")}) {
			t.Fatal(r.Decision)
		}
		if r.HasSession != (c.want != "") || r.HasSession && r.Session != session.Key([]byte(c.want)) {
			t.Errorf("%s%s: a session %v, not that of %q", c.headers, c.body, r.HasSession, c.want)
		}
	}
}

// What goes on from a response belongs to the session that did so before.
func TestPreviousResponse(t *testing.T) {
	in := newIntake()
	in.Apply(Config{SessionFields: []SessionField{SessionFieldOf("prompt_cache_key")}, Pools: []decider.PoolConfig{pool("llama", "m")}})
	of := func(fields string) uint64 {
		var r Request
		in.Read(&r, Input{Path: []byte("/v1/responses"), Body: []byte(`{"model":"m","input":"x",` + fields + `}`)})
		if !r.HasSession {
			t.Errorf("%s: no session", fields)
		}
		return r.Session
	}
	of(`"previous_response_id":"resp_1","prompt_cache_key":"k"`)
	if of(`"previous_response_id":"resp_1"`) != session.Key([]byte("k")) {
		t.Error("a second branch of a response has another session")
	}
	if of(`"previous_response_id":"resp_2"`) != session.Key([]byte("resp_2")) {
		t.Error("a response of an unknown session is none of its own")
	}
	for i := range 100_000 {
		of(fmt.Sprintf(`"previous_response_id":"many_%d","prompt_cache_key":"k%d"`, i, i))
	}
	found := 0
	for i := range 100_000 {
		if s := of(fmt.Sprintf(`"previous_response_id":"many_%d"`, i)); s == session.Key(fmt.Appendf(nil, "k%d", i)) {
			found++
		}
	}
	if found < responsesKept/2 || found > responsesKept {
		t.Errorf("%d of 100000 responses are remembered", found)
	}
}
