package rig

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/loopback"
	"pointsman/sim"
	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// Quick is a profile whose time goes by the number of tokens alone: one for
// each millisecond, whatever the prompt.
var Quick = sim.Profile{
	Name: "quick", PrefillRate: 1e9, Chunk: 1 << 20, Base: time.Millisecond,
	AttentionDepth: math.Inf(1), MaxRunning: 512,
}

// EngineOptions say what a fake replica serves.
type EngineOptions = fakevllm.Options

// Engine is a fake replica on a port of its own, which it keeps while it is
// down.
type Engine struct {
	Name, Address string
	Sim           *fakevllm.Server
	Anywhere      bool // it serves chats below any path, set before the first request
	// Closes, unless nil, says after how long without a request the replica closes a
	// connection. Set before the first request.
	Closes  func() time.Duration
	http    *http.Server
	Emitted sync.Map // X-Watch of a request → *emission

	mu       sync.Mutex
	arrivals []string      // X-Watch of the requests, in their order
	released chan struct{} // closed when the requests with X-Hold go on
	holding  int           // requests with X-Hold that wait
	opened   int           // connections that it has taken
	idle     map[net.Conn]*time.Timer
}

// Holds is how many requests with X-Hold wait.
func (e *Engine) Holds() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holding
}

// Opened is how many connections it has taken.
func (e *Engine) Opened() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened
}

// Arrived lists the X-Watch of the requests that came, in their order.
func (e *Engine) Arrived() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.arrivals)
}

// ReleaseAll lets n requests with X-Hold go on, when all of them have come: a proxy may send one
// long after its decision.
func ReleaseAll(t testing.TB, n int, engines ...*Engine) {
	t.Helper()
	Eventually(t, 20*time.Second, fmt.Sprint("requests that the engines hold: ", n), func() (bool, string) {
		held := 0
		for _, e := range engines {
			held += e.Holds()
		}
		return held == n, fmt.Sprint(held)
	})
	for _, e := range engines {
		e.Release()
	}
}

// Release lets the requests with X-Hold go on that have come.
func (e *Engine) Release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.released)
	e.released = make(chan struct{})
}

// held waits for release. It reports false when the client has left before.
func (e *Engine) held(r *http.Request) bool {
	body, err := io.ReadAll(r.Body) // from then on the server notices that the client leaves
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.mu.Lock()
	released := e.released
	e.holding++
	e.mu.Unlock()
	defer e.Sim.Hold()()
	defer func() {
		e.mu.Lock()
		e.holding--
		e.mu.Unlock()
	}()
	select {
	case <-released:
		return true
	case <-r.Context().Done():
		return false
	}
}

// Emission is when the chunks of one answer were handed to the network.
type Emission struct {
	Mu sync.Mutex
	At []time.Time
}

// StartEngine starts a replica that serves the models. It ends with the test.
func StartEngine(t testing.TB, name string, o EngineOptions) *Engine {
	t.Helper()
	// None that an outgoing connection could take while it is down.
	return StartEngineAt(t, name, FreeAddress(t), o)
}

// StartEngineAt is StartEngine at an address.
func StartEngineAt(t testing.TB, name, address string, o EngineOptions) *Engine {
	t.Helper()
	o.Name = name
	if o.Profile == (sim.Profile{}) {
		o.Profile = Quick
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.CacheTokens == 0 {
		o.CacheTokens, o.MaxModelLen = 8<<20, 4<<20
	}
	e := &Engine{Name: name, Address: address, Sim: fakevllm.New(o)}
	e.released = make(chan struct{})
	e.Up(t)
	t.Cleanup(func() {
		e.http.Close()
		e.Sim.Close()
	})
	return e
}

// Serve serves what comes to l.
func (e *Engine) Serve(l net.Listener) {
	e.http = e.Sim.HTTPServer()
	e.http.Handler = e
	e.http.ConnState = e.connection
	go func() { _ = e.http.Serve(l) }()
}

// connection counts connections, and ends idle ones as Closes says.
func (e *Engine) connection(c net.Conn, state http.ConnState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if state == http.StateNew {
		e.opened++
	}
	if e.Closes == nil {
		return
	}
	if timer := e.idle[c]; timer != nil {
		timer.Stop()
		delete(e.idle, c)
	}
	if state == http.StateIdle {
		if e.idle == nil {
			e.idle = map[net.Conn]*time.Timer{}
		}
		var timer *time.Timer
		timer = time.AfterFunc(e.Closes(), func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.idle[c] == timer { // no request has begun meanwhile
				delete(e.idle, c)
				c.Close()
			}
		})
		e.idle[c] = timer
	}
}

// Down makes the replica refuse connections and cuts those it has. It returns
// when the other ends have noticed: a request that is sent at the same moment on
// an idle connection would be lost, whatever the proxy does.
func (e *Engine) Down(t testing.TB) {
	t.Helper()
	loopback.Free(e.http, e.Address)
	_, port, _ := net.SplitHostPort(e.Address)
	Eventually(t, 10*time.Second, "connections to "+e.Name+" are closed", func() (bool, string) {
		n := proxies.Connected(port)
		return n == 0, fmt.Sprint(n)
	})
}

// Up makes it listen.
func (e *Engine) Up(t testing.TB) {
	t.Helper()
	e.Serve(proxies.Listen(t, e.Address))
}

// ServeHTTP notes the times of the chunks of the answers that are watched, and
// holds the requests that ask for it.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get("X-Watch"); id != "" {
		e.mu.Lock()
		e.arrivals = append(e.arrivals, id)
		e.mu.Unlock()
		em := new(Emission)
		e.Emitted.Store(id, em)
		w = &watched{ResponseWriter: w, Emission: em}
	}
	if r.Header.Get("X-Hold") != "" && !e.held(r) {
		return
	}
	if e.Anywhere && strings.HasSuffix(r.URL.Path, ChatPath) {
		r.URL.Path = ChatPath
	}
	e.Sim.ServeHTTP(w, r)
}

// watched notes when each chunk is written out: at the flush that follows.
type watched struct {
	http.ResponseWriter
	*Emission
	pending int
}

func (w *watched) Write(b []byte) (int, error) {
	w.pending += bytes.Count(b, []byte("\n\n"))
	return w.ResponseWriter.Write(b)
}

func (w *watched) Flush() {
	w.Mu.Lock()
	now := time.Now()
	for ; w.pending > 0; w.pending-- {
		w.At = append(w.At, now)
	}
	w.Mu.Unlock()
	w.ResponseWriter.(http.Flusher).Flush()
}
