package check

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestLive: what is printed for each step that is missing.
func TestLive(t *testing.T) {
	const all = `"pool":"llama","server":"r1","why":"least_work","served_by":"r1","first_byte":true,"ttft_s":0.0123,"ended":true,"end":"served"`
	for _, c := range []struct {
		name, request, want string
		status              int
	}{
		{"all", "{" + all + "}", "asked             yes, for pool llama\ndecided           r1 (least_work)\nserved by         r1\nfirst byte        after 12 ms\nend               served\nasked, decided, reported\n", 200},
		{"not asked", "null", "asked             NO: the agent got no question: ", 200},
		{"not decided", `{"pool":"llama","why":"no replica"}`, "decided           NO: no replica was chosen: no replica\n", 503},
		{"not reported", `{"pool":"llama","server":"r1"}`, "reported          NO: the proxy served it, but no log line came", 200},
		{"elsewhere", "{" + strings.Replace(all, `"served_by":"r1"`, `"served_by":"r2"`, 1) + "}", `served by         NO: "r2", not the replica that was decided`, 200},
		{"no first byte", "{" + strings.Replace(all, "true", "false", 1) + "}", "first byte        not reported: nginx logs none", 200},
		{"failed", "{" + strings.Replace(all, `"end":"served"`, `"end":"server_error"`, 1) + "}", "end               NO: server_error\n", 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			watched, marked := "", ""
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodPost {
					watched = r.URL.Query().Get("session")
				}
				if r.URL.Path == "/status" {
					io.WriteString(w, `{"version":"v1","pools":[{"models":["m1"]}]}`)
					return
				}
				io.WriteString(w, `{"session_headers":["authorization","x-session-id"],"request":`+c.request+"}")
			}))
			defer agent.Close()
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				marked = r.Header.Get("X-Session-Id")
				if b, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(b), `"model":"m1"`) || r.Header.Get("Authorization") != "Bearer k" {
					t.Errorf("%v: %s %v", err, b, r.Header)
				}
				w.WriteHeader(c.status)
			}))
			defer proxy.Close()
			var b strings.Builder
			err := RunLive(&b, LiveOptions{URL: proxy.URL, Admin: agent.URL, Headers: []string{"Authorization: Bearer k"}, Patience: time.Millisecond})
			if watched == "" || watched != marked {
				t.Errorf("watched %q, marked %q", watched, marked)
			}
			if !strings.Contains(b.String(), c.want) || (err == nil) != strings.HasSuffix(b.String(), "\nasked, decided, reported\n") || c.name == "all" && err != nil || err != nil && !errors.Is(err, ErrLive) {
				t.Errorf("%v\n%s", err, b.String())
			}
		})
	}
}

// A pool that takes all models lists none: an engine is asked for one, with the same
// headers, and where none answers the finding says how to name it.
func TestLiveFindsTheModel(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/status" {
			io.WriteString(w, `{"version":"v1","pools":[{}]}`)
			return
		}
		io.WriteString(w, `{"session_headers":["x-session-id"],"request":{"pool":"llama","server":"r1","why":"least_work","served_by":"r1","ended":true,"end":"served"}}`)
	}))
	defer agent.Close()
	for _, c := range []struct{ models, want string }{
		{`{"object":"list","data":[{"id":"m7"},{"id":"m8"}]}`, "asked, decided, reported\n"},
		{`{"data":[]}`, `it was asked for the model "default": name another with --model`},
		{`<html>`, `it was asked for the model "default": name another with --model`},
	} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer k" {
				t.Errorf("%s: %v", r.URL, r.Header)
			}
			if r.URL.Path == "/up/v1/models" {
				io.WriteString(w, c.models)
				return
			}
			if b, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(b), `"model":"m7"`) {
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		var b strings.Builder
		_ = RunLive(&b, LiveOptions{URL: proxy.URL + "/up/v1/chat/completions", Admin: agent.URL, Headers: []string{"Authorization: Bearer k"}, Patience: time.Millisecond})
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%s: %s", c.models, b.String())
		}
		proxy.Close()
	}
}

// An engine that refuses the request is not a step that is missing.
func TestLiveRefusedByTheReplica(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"version":"v1","session_headers":["x-session-id"],"pools":[{"models":["m"]}],"request":{"pool":"llama","server":"r1","why":"least_work","served_by":"r1","ended":true,"end":"served"}}`)
	}))
	defer agent.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer proxy.Close()
	err := RunLive(io.Discard, LiveOptions{URL: proxy.URL, Admin: agent.URL, Patience: time.Millisecond})
	if err == nil || errors.Is(err, ErrLive) || !strings.Contains(err.Error(), "the answer is 401") {
		t.Errorf("%v", err)
	}
}

// A proxy that asks from the second request on, as after a reload, is in order.
func TestLiveAsksAgain(t *testing.T) {
	sent := 0
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := "null"
		if sent > 1 {
			request = `{"pool":"llama","server":"r1","why":"least_work","served_by":"r1","ended":true,"end":"served"}`
		}
		io.WriteString(w, `{"version":"v1","session_headers":["x-session-id"],"pools":[{"models":["m"]}],"request":`+request+"}")
	}))
	defer agent.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent++ }))
	defer proxy.Close()
	var b strings.Builder
	if err := RunLive(&b, LiveOptions{URL: proxy.URL, Admin: agent.URL, Patience: time.Millisecond}); err != nil || sent != 2 {
		t.Errorf("%v after %d requests: %s", err, sent, b.String())
	}
}
