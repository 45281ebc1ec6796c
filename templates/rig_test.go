package templates_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/negasus/haproxy-spoe-go/action"
	"github.com/negasus/haproxy-spoe-go/agent"
	"github.com/negasus/haproxy-spoe-go/logger"
	"github.com/negasus/haproxy-spoe-go/request"

	"pointsman/templates"
	"pointsman/test/proxies"
)

// eventually polls until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// vars is what an agent gets as arguments or answers as variables.
type vars map[string]any

// fakeAgent answers each message by answer.
type fakeAgent struct {
	addr   string
	answer atomic.Pointer[func(vars) vars]
	asked  atomic.Int64
	frozen sync.RWMutex

	mu    sync.Mutex
	l     net.Listener
	conns []net.Conn
	last  vars
}

// Accept keeps the connections, so that stop can break them.
func (a *fakeAgent) Accept() (net.Conn, error) {
	c, err := a.l.Accept()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns = append(a.conns, c)
	return freezing{c, a}, nil
}

// freezing is a connection of an agent that freeze can stop.
type freezing struct {
	net.Conn
	a *fakeAgent
}

func (c freezing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.a.frozen.RLock()
	defer c.a.frozen.RUnlock()
	return n, err
}

// freeze makes the agent as silent as one that is stopped by a signal: its
// sockets are open and nothing is read or answered. It returns what ends it.
func (a *fakeAgent) freeze() (thaw func()) {
	a.frozen.Lock()
	return a.frozen.Unlock
}
func (a *fakeAgent) Close() error   { return a.l.Close() }
func (a *fakeAgent) Addr() net.Addr { return a.l.Addr() }

func (a *fakeAgent) start(t *testing.T) {
	l, err := net.Listen("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	a.l = l
	go agent.New(a.handle, logger.NewNop()).Serve(a)
}

func (a *fakeAgent) stop() {
	a.l.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.conns {
		c.Close()
	}
	a.conns = nil
}

func (a *fakeAgent) handle(r *request.Request) {
	m, err := r.Messages.GetByName("pm-route")
	if err != nil {
		return
	}
	args := vars{}
	for _, it := range m.KV.Data() {
		if b, ok := it.Value.([]byte); ok {
			it.Value = string(b)
		}
		args[it.Name] = it.Value
	}
	a.mu.Lock()
	a.last = args
	a.mu.Unlock()
	a.asked.Add(1)
	for k, v := range (*a.answer.Load())(args) {
		r.Actions.SetVar(action.ScopeTransaction, k, v)
	}
}

func (a *fakeAgent) answers(f func(vars) vars) { a.answer.Store(&f) }

func (a *fakeAgent) args() vars {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// feed collects the lines of the ring.
type feed struct {
	mu    sync.Mutex
	lines []map[string]string
}

// read parses octet-counted lines.
func (f *feed) read(t *testing.T, c net.Conn) {
	for r := bufio.NewReader(c); ; {
		n, err := r.ReadString(' ')
		if err != nil {
			return
		}
		size, err := strconv.Atoi(strings.TrimSpace(n))
		line := make([]byte, size)
		if err != nil || size == 0 {
			t.Errorf("feed: length %q", n)
			return
		}
		if _, err := io.ReadFull(r, line); err != nil {
			return
		}
		_, fields, ok := strings.Cut(string(line), templates.FeedMarker+" ")
		if !ok {
			t.Errorf("feed: line without marker: %s", line)
			continue
		}
		m := map[string]string{}
		for _, w := range strings.Fields(fields) {
			k, v, _ := strings.Cut(w, "=")
			m[k] = v
		}
		f.mu.Lock()
		f.lines = append(f.lines, m)
		f.mu.Unlock()
	}
}

// of returns the lines of one event and one request.
func (f *feed) of(ev, rid string) []map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []map[string]string
	for _, l := range f.lines {
		if l["ev"] == ev && (rid == "" || l["rid"] == rid) {
			out = append(out, l)
		}
	}
	return out
}

// wait waits for the line of one event of one request.
func (f *feed) wait(t *testing.T, ev, rid string) map[string]string {
	t.Helper()
	eventually(t, "the "+ev+" line of "+rid, func() bool { return len(f.of(ev, rid)) > 0 })
	return f.of(ev, rid)[0]
}

// replica is a fake engine. A POST to a path below /v1/stream follows the
// test's steps; any other is answered with the replica's name.
type replica struct {
	name   string
	srv    *httptest.Server
	hits   atomic.Int64
	header atomic.Pointer[http.Header]
	gone   chan struct{}  // gets a value when a stream's client left
	write  chan string    // each value is sent as one chunk
	wrote  chan time.Time // the time just before a chunk was sent
}

func newReplica(t *testing.T, name string) *replica {
	r := &replica{name: name, gone: make(chan struct{}, 9), write: make(chan string), wrote: make(chan time.Time, 99)}
	r.srv = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.srv.Close)
	return r
}

func (r *replica) addr() string { return r.srv.Listener.Addr().String() }

func (r *replica) serve(w http.ResponseWriter, q *http.Request) {
	n, _ := io.Copy(io.Discard, q.Body)
	if q.URL.Path == "/health" {
		return
	}
	r.hits.Add(1)
	r.header.Store(&q.Header)
	w.Header().Set("X-Replica", r.name)
	w.Header().Set("X-Bytes", fmt.Sprint(n))
	if !strings.HasPrefix(q.URL.Path, "/v1/stream") {
		fmt.Fprintf(w, `{"replica":%q}`, r.name)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush()
	for {
		select {
		case s := <-r.write:
			if s == "" {
				return
			}
			r.wrote <- time.Now()
			io.WriteString(w, s)
			w.(http.Flusher).Flush()
		case <-q.Context().Done():
			r.gone <- struct{}{}
			return
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
func newRig(t *testing.T, bin proxies.Binary, form string) *rig {
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

// do sends a request; the caller closes the body.
func (g *rig) do(ctx context.Context, method, path, body string, head ...string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.Fatal(err)
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
