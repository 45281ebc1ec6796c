package templates_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

	"pointsman/loopback"
	"pointsman/templates"
	"pointsman/test/proxies"
)

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

func (a *fakeAgent) Close() error { return a.l.Close() }

func (a *fakeAgent) Addr() net.Addr { return a.l.Addr() }

func (a *fakeAgent) start(t *testing.T) {
	l := proxies.Listen(t, a.addr)
	a.l = l
	go agent.New(a.handle, logger.NewNop()).Serve(a)
}

func (a *fakeAgent) stop() {
	loopback.Free(a.l, a.addr)
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
		fields, _, ok := strings.Cut(string(line), " "+templates.FeedEnd)
		if !ok || !strings.HasPrefix(fields, templates.FeedMarker+" ") {
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
