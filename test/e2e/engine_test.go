package e2e

import (
	"bytes"
	"math"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"pointsman/sim"
	"pointsman/sim/fakevllm"
)

// quick is a profile whose time goes by the number of tokens alone: one for
// each millisecond, whatever the prompt.
var quick = sim.Profile{
	Name: "quick", PrefillRate: 1e9, Chunk: 1 << 20, Base: time.Millisecond,
	AttentionDepth: math.Inf(1), MaxRunning: 512,
}

// engine is a fake replica on a port of its own, which it keeps while it is
// down.
type engine struct {
	name, address string
	sim           *fakevllm.Server
	http          *http.Server
	emitted       sync.Map // X-Watch of a request → *emission
}

// emission is when the chunks of one answer were handed to the network.
type emission struct {
	mu sync.Mutex
	at []time.Time
}

// startEngine starts a replica that serves the models. It ends with the test.
func startEngine(t testing.TB, name string, o fakevllm.Options) *engine {
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.address = l.Addr().String()
	e.serve(l)
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

// down makes the replica refuse connections and cuts those it has.
func (e *engine) down() { e.http.Close() }

// up ends that.
func (e *engine) up(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	e.serve(l)
}

// ServeHTTP notes the times of the chunks of the answers that are watched.
func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get("X-Watch"); id != "" {
		em := new(emission)
		e.emitted.Store(id, em)
		w = &watched{ResponseWriter: w, emission: em}
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
