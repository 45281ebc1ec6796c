package admin

import (
	"strings"
	"testing"

	"pointsman/decider"
	"pointsman/session"
)

func TestWatch(t *testing.T) {
	b := newBench(t)
	const id = "pointsman-check-1"
	if status, text := b.do("POST", "/debug/watch?session=short", "", "Content-Type: application/json"); status != 400 || !strings.Contains(text, "want session=ID") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := b.do("POST", "/debug/watch?session="+id, "", "Content-Type: application/json"); status != 200 || text != `{"session_headers":["x-session-id"],"request":null}`+"\n" {
		t.Errorf("%d %s", status, text)
	}
	r := decider.Request{ID: decider.ParseID([]byte("x")), Session: session.Key([]byte(id)), Watched: session.Key([]byte(id)), HasSession: true}
	var d decider.Decision
	r.Pool = b.server.decider.PoolNamed([]byte("sticky"))
	r.Pool.Decide(&r, &d)
	if text := b.get("/debug/watch?session=" + id); !strings.Contains(text, `"pool":"sticky","asked":true,"server":"r1"`) {
		t.Error(text)
	}
	if text := b.get("/debug/watch?session=another-one"); !strings.Contains(text, `"request":null`) {
		t.Error(text)
	}
}
