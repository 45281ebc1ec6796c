package templates_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/templates"
	"pointsman/test/proxies"
)

// eventually polls until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// rig is an HAProxy between a client and two replicas of one pool, one replica
// of another, and an agent.
type rig struct {
	*testing.T
	bin   proxies.Binary
	ver   templates.Version
	form  string
	url   string
	api   string
	proc  *proxies.Proc
	agent *fakeAgent
	feed  *feed
	r1    *replica
	r2    *replica
	other *replica
}

// forms are the ways to install: whole, attached with one pool, attached with
// several.
var forms = []string{"whole", "one pool", "several pools"}

// newRig starts all but the agent.
func newRig(t *testing.T, bin proxies.Binary, form string, edits ...func(*templates.HAProxy)) *rig {
	ver, err := templates.ParseVersion(bin.Version)
	if err != nil {
		t.Fatal(err)
	}
	port := proxies.FreePort(t)
	g := &rig{
		T: t, bin: bin, ver: ver, form: form,
		url:   fmt.Sprintf("http://127.0.0.1:%d", port),
		agent: &fakeAgent{addr: fmt.Sprintf("127.0.0.1:%d", proxies.FreePort(t))},
		feed:  &feed{},
		r1:    newReplica(t, "r1"), r2: newReplica(t, "r2"), other: newReplica(t, "other"),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go g.feed.read(t, c)
		}
	}()

	// Not t.TempDir: its path may be longer than a socket's path can be.
	dir, err := os.MkdirTemp("", "pointsman")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	g.api = filepath.Join(dir, "api.sock")
	o := templates.HAProxy{
		Version: ver, Bind: strings.TrimPrefix(g.url, "http://"), SPOEConf: "./" + templates.SPOEFile,
		AgentAddress: g.agent.addr, FeedAddress: l.Addr().String(), RuntimeAPI: "unix://" + g.api,
		Bufsize: 256 << 10, ProcessingTimeout: 300 * time.Millisecond,
		Pools: []templates.Pool{
			{Name: "llama", Models: []string{"llama-8b"}, HealthPath: "none", Replicas: []templates.Replica{
				{Name: "r1", Address: g.r1.addr()}, {Name: "r2", Address: g.r2.addr()},
				// Its weight keeps it from ever being picked by HAProxy itself.
				{Name: "refuses", Address: fmt.Sprintf("127.0.0.1:%d", proxies.FreePort(t)), Weight: 1}}},
			{Name: "other", Models: []string{"a", "it's \"other\" $1"}, Replicas: []templates.Replica{{Name: "o1", Address: g.other.addr()}}},
		},
	}
	for _, edit := range edits {
		edit(&o)
	}
	if form == "whole" {
		files, err := templates.RenderHAProxy(o)
		if err != nil {
			t.Fatal(err)
		}
		g.proc = proxies.Start(t, bin, files[0].Text, proxies.File(files[1]))
		return g
	}
	if form == "one pool" {
		o.Pools = o.Pools[:1]
	}
	files, paste, err := templates.AttachHAProxy(o)
	if err != nil {
		t.Fatal(err)
	}
	g.proc = proxies.Start(t, bin, userConfig(o.Bind, g.api, paste, true), proxies.File(files[0]), proxies.File(files[1]))
	return g
}

// userConfig is an operator's configuration with our lines pasted in. live
// takes the optional ones too, and what they ask for.
func userConfig(bind, api string, paste []templates.Snippet, live bool) string {
	section := map[string]string{}
	profile := ""
	for _, s := range paste {
		if s.Optional && live {
			profile = "profile pointsman-own "
		}
		if !s.Optional || live {
			section[s.Where] += s.Text
		}
	}
	return `
global
    log stdout format raw ` + profile + `local0
    stats socket ` + api + ` level admin
` + section["global"] + `
defaults
    mode http
    log global
    option httplog
    timeout connect 1s
    timeout client 30s
    timeout server 30s
` + section["defaults"] + `
frontend main
    bind ` + bind + `
` + section["frontend"] + `
    default_backend web

backend web
    http-request return status 200 content-type text/plain string "the operator's own site"
`
}

// do sends a request; the caller closes the body. Any goroutine may call it.
func (g *rig) do(ctx context.Context, method, path, body string, head ...string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, g.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(head); i += 2 {
		q.Header.Set(head[i], head[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	return tr.RoundTrip(q)
}

// post sends a chat request and returns the answer with its body read.
func (g *rig) post(head ...string) (*http.Response, string) {
	g.Helper()
	return g.postBody(`{"model":"llama-8b","messages":[{"role":"user","content":"hi"}]}`, head...)
}

func (g *rig) postBody(body string, head ...string) (*http.Response, string) {
	g.Helper()
	res, err := g.do(g.Context(), "POST", "/v1/chat/completions", body, head...)
	if err != nil {
		g.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.Fatal(err)
	}
	return res, string(text)
}

// decide makes the agent answer these variables.
func (g *rig) decide(v vars) {
	if v["pool"] == nil && v["status"] == nil {
		v["pool"] = "llama"
	}
	g.agent.answers(func(vars) vars { return v })
}

// rid is the id of the last request that the agent was asked about.
func (g *rig) rid() string { s, _ := g.agent.args()["rid"].(string); return s }
