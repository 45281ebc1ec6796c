package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"pointsman/sim"
	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// quick is a profile whose time goes by the number of tokens alone: one for
// each millisecond, whatever the prompt.
var quick = sim.Profile{
	Name: "quick", PrefillRate: 1e9, Chunk: 1 << 20, Base: time.Millisecond,
	AttentionDepth: math.Inf(1), MaxRunning: 512,
}

// engineOptions say what a fake replica serves.
type engineOptions = fakevllm.Options

// engine is a fake replica on a port of its own, which it keeps while it is
// down.
type engine struct {
	name, address string
	sim           *fakevllm.Server
	http          *http.Server
	emitted       sync.Map // X-Watch of a request → *emission

	mu       sync.Mutex
	arrivals []string      // X-Watch of the requests, in their order
	released chan struct{} // closed when the requests with X-Hold go on
	holding  int           // requests with X-Hold that wait
}

// holds is how many requests with X-Hold wait.
func (e *engine) holds() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holding
}

// arrived lists the X-Watch of the requests that came, in their order.
func (e *engine) arrived() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.arrivals)
}

// release lets the requests with X-Hold go on that have come.
func (e *engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.released)
	e.released = make(chan struct{})
}

// held waits for release. It reports false when the client has left before.
func (e *engine) held(r *http.Request) bool {
	body, err := io.ReadAll(r.Body) // from then on the server notices that the client leaves
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.mu.Lock()
	released := e.released
	e.holding++
	e.mu.Unlock()
	defer e.sim.Hold()()
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

// emission is when the chunks of one answer were handed to the network.
type emission struct {
	mu sync.Mutex
	at []time.Time
}

// startEngine starts a replica that serves the models. It ends with the test.
func startEngine(t testing.TB, name string, o engineOptions) *engine {
	t.Helper()
	o.Name = name
	if o.Profile == (sim.Profile{}) {
		o.Profile = quick
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	o.CacheTokens, o.MaxModelLen = 8<<20, 4<<20
	e := &engine{name: name, sim: fakevllm.New(o)}
	e.address = freeAddress(t) // none that an outgoing connection could take while it is down
	e.released = make(chan struct{})
	e.up(t)
	t.Cleanup(func() {
		e.http.Close()
		e.sim.Close()
	})
	return e
}

func (e *engine) serve(l net.Listener) {
	e.http = e.sim.HTTPServer()
	e.http.Handler = e
	go e.http.Serve(l)
}

// down makes the replica refuse connections and cuts those it has. It returns
// when the other ends have noticed: a request that is sent at the same moment on
// an idle connection would be lost, whatever the proxy does.
func (e *engine) down(t testing.TB) {
	t.Helper()
	proxies.Free(e.http)
	_, port, _ := net.SplitHostPort(e.address)
	eventually(t, 10*time.Second, "connections to "+e.name+" are closed", func() (bool, string) {
		n := proxies.Connected(port)
		return n == 0, fmt.Sprint(n)
	})
}

// up makes it listen.
func (e *engine) up(t testing.TB) {
	t.Helper()
	e.serve(proxies.Listen(t, e.address))
}

// ServeHTTP notes the times of the chunks of the answers that are watched, and
// holds the requests that ask for it.
func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get("X-Watch"); id != "" {
		e.mu.Lock()
		e.arrivals = append(e.arrivals, id)
		e.mu.Unlock()
		em := new(emission)
		e.emitted.Store(id, em)
		w = &watched{ResponseWriter: w, emission: em}
	}
	if r.Header.Get("X-Hold") != "" && !e.held(r) {
		return
	}
	e.sim.ServeHTTP(w, r)
}

// watched notes when each chunk is written out: at the flush that follows.
type watched struct {
	http.ResponseWriter
	*emission
	pending int
}

func (w *watched) Write(b []byte) (int, error) {
	w.pending += bytes.Count(b, []byte("\n\n"))
	return w.ResponseWriter.Write(b)
}

func (w *watched) Flush() {
	w.mu.Lock()
	now := time.Now()
	for ; w.pending > 0; w.pending-- {
		w.at = append(w.at, now)
	}
	w.mu.Unlock()
	w.ResponseWriter.(http.Flusher).Flush()
}
