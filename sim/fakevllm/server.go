package fakevllm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/sim"
)

// Options describe one fake replica. Zero values take the defaults.
type Options struct {
	// Name is told in X-Engine and at the beginning of every answer.
	Name string
	// Models are the names served; the first is that of the weights and by
	// default "fake".
	Models []string
	// LoRA are names of adapters, served beside the models.
	LoRA []string
	// MaxLoRA is the number of adapters that fit at once, by default all.
	MaxLoRA int
	// Profile is the engine's speed, by default Profile8B.
	Profile sim.Profile
	// BlockSize is the tokens in a block of KV cache, by default 16.
	BlockSize int
	// CacheTokens is the KV cache in tokens, by default 500,000.
	CacheTokens int
	// MaxModelLen bounds prompt and output of a request in tokens, by default
	// 131,072 or the whole cache.
	MaxModelLen int
	// Events is where events of the KV cache are published, as
	// "tcp://127.0.0.1:5557", and Replay where past ones are asked for; empty
	// for nowhere.
	Events, Replay string
	// EventForm chooses the form of the events; its BlockSize is not used.
	EventForm KVEventsOptions
	// LoseBatch, if set, is asked whether the batch of events of that number is
	// lost on its way, and LoseReplay whether a replay fails.
	LoseBatch  func(number uint64) bool
	LoseReplay func() bool
	// Speed is how many times faster than its profile the engine runs: 1 is
	// real time, 0 does not wait at all.
	Speed float64
}

// Server is a replica that behaves like vLLM: its API over HTTP, its metrics
// and its timing, with an Engine for the work. It is safe for concurrent use.
//
// Failures are asked for by request headers or for the whole replica; see
// fault. Each answer carries X-Engine with the replica's name, X-Body-Sha256
// of the body received in hex, and X-Seen-Headers with the names of the
// headers received, sorted and in lower case.
type Server struct {
	o       Options
	started time.Time
	intro   string // the first token of every answer
	ids     atomic.Uint64

	mu      sync.Mutex // guards what follows
	engine  *sim.Engine
	virtual time.Duration // the engine's time, at speed 0
	metrics metrics
	fault   *standingFault
	events  *publisher // nil: none are published

	wake   chan struct{}
	closed chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

// maxBody is the largest request body read, in bytes.
const maxBody = 100 << 20

// New starts a replica; Close ends it. It panics on options that make no
// engine; Options.Validate returns why beforehand.
func New(o Options) *Server {
	o = o.withDefaults()
	s := &Server{
		o: o, started: time.Now(), intro: intro(o.Name),
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	eo := o.engineOptions()
	if o.Events != "" {
		s.events = newPublisher(o)
		eo.Stored, eo.Removed = s.blockStored, s.events.log.Removed
	}
	engine, err := sim.NewEngine(eo)
	if err != nil {
		panic(err)
	}
	s.engine = engine
	s.metrics.init()
	s.done.Go(s.run)
	return s
}

// Publish opens the sockets for events of the KV cache; without it none leave
// the engine. Close closes them.
func (s *Server) Publish() error {
	if s.events == nil {
		return nil
	}
	return s.events.open(&s.mu)
}

// Validate returns the error for which New would panic.
func (o Options) Validate() error {
	_, err := sim.NewEngine(o.withDefaults().engineOptions())
	return err
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "fake"
	}
	if len(o.Models) == 0 {
		o.Models = []string{"fake"}
	}
	if o.MaxLoRA == 0 {
		o.MaxLoRA = max(1, len(o.LoRA))
	}
	if o.Profile == (sim.Profile{}) {
		o.Profile = sim.Profile8B
	}
	if o.BlockSize == 0 {
		o.BlockSize = 16
	}
	if o.CacheTokens == 0 {
		o.CacheTokens = 500_000
	}
	if o.MaxModelLen == 0 {
		o.MaxModelLen = 131_072
	}
	if o.BlockSize > 0 {
		o.MaxModelLen = min(o.MaxModelLen, o.CacheTokens/o.BlockSize*o.BlockSize)
	}
	return o
}

func (o Options) engineOptions() sim.EngineOptions {
	return sim.EngineOptions{Profile: o.Profile, BlockSize: o.BlockSize, CacheTokens: o.CacheTokens, EachToken: true}
}

// HTTPServer returns a server for this replica that speaks HTTP/1.1 and
// HTTP/2 in plain text. The caller listens, serves and shuts it down.
func (s *Server) HTTPServer() *http.Server {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: s, Protocols: p, ReadHeaderTimeout: time.Minute,
		// A client that goes away in mid-request is the everyday of tests.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// Stats is a snapshot of the engine behind the server.
func (s *Server) Stats() sim.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.Stats()
}

// Close ends the engine. Requests in flight are cut off.
func (s *Server) Close() {
	s.once.Do(func() { close(s.closed) })
	s.done.Wait()
	if s.events != nil {
		s.events.close()
	}
}

type route struct {
	method string
	handle func(*Server, *exchange)
}

var routes = map[string]route{
	"/v1/chat/completions": {http.MethodPost, (*Server).chat},
	"/v1/completions":      {http.MethodPost, (*Server).completions},
	"/v1/embeddings":       {http.MethodPost, (*Server).embeddings},
	"/v1/models":           {http.MethodGet, (*Server).models},
	"/health":              {http.MethodGet, (*Server).health},
	"/version":             {http.MethodGet, (*Server).version},
	"/metrics":             {http.MethodGet, (*Server).serveMetrics},
	"/tokenize":            {http.MethodPost, (*Server).tokenize},
	"/detokenize":          {http.MethodPost, (*Server).detokenize},
	"/fake/fail":           {http.MethodPost, (*Server).setFault},
	"/fake/reset":          {http.MethodPost, (*Server).resetFault},
}

var tooLarge = &apiError{status: http.StatusRequestEntityTooLarge, kind: "Request Entity Too Large", message: "Request body too large"}

// exchange is one request and the way to answer it.
type exchange struct {
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	fault  fault
	chunks int // written so far
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{w: w, r: r}
	h := w.Header()
	h.Set("X-Engine", s.o.Name)
	h.Set("X-Seen-Headers", seenHeaders(r.Header))
	digest := sha256.New()
	var err error
	if r.ContentLength > maxBody {
		x.fail(tooLarge)
		return
	}
	x.body, err = readBody(io.TeeReader(http.MaxBytesReader(w, r.Body, maxBody), digest), r.ContentLength)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			x.fail(tooLarge)
			return
		}
		x.fail(badRequest("the body ended early"))
		return
	}
	h.Set("X-Body-Sha256", hex.EncodeToString(digest.Sum(nil)))

	found, ok := routes[r.URL.Path]
	if !ok {
		x.fail(&apiError{status: http.StatusNotFound, kind: "Not Found", message: "Not Found"})
		return
	}
	if r.Method != found.method && !(r.Method == http.MethodHead && found.method == http.MethodGet) {
		h.Set("Allow", found.method)
		x.fail(&apiError{status: http.StatusMethodNotAllowed, kind: "Method Not Allowed", message: "Method Not Allowed"})
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/fake/") {
		if !s.applyFault(x) {
			return
		}
	}
	found.handle(s, x)
}

// readBody reads all of a body whose length the client may have declared.
func readBody(r io.Reader, declared int64) ([]byte, error) {
	// What is declared is not yet sent: reserve a little, grow by what comes.
	buf := make([]byte, 0, min(max(declared, 511), 1<<20)+1)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, len(buf))
		}
	}
}

// seenHeaders lists header names; at most 100 of them.
func seenHeaders(h http.Header) string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	return strings.Join(names[:min(len(names), 100)], ",")
}

// json answers with status and v.
func (x *exchange) json(status int, v any) {
	body, err := sonic.Marshal(v)
	if err != nil {
		panic(err) // our own types always marshal
	}
	x.raw(status, "application/json", body)
}

// raw answers with a whole body, or dies in the middle of it where that was
// asked for.
func (x *exchange) raw(status int, contentType string, body []byte) {
	h := x.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", itoa(len(body)))
	x.w.WriteHeader(status)
	if x.fault.dieAfter > 0 {
		x.w.Write(body[:len(body)/2])
		x.flush()
		x.die()
	}
	x.w.Write(body)
}

type wireError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	} `json:"error"`
}

// fail answers with a refusal.
func (x *exchange) fail(e *apiError) {
	var out wireError
	out.Error.Message, out.Error.Type, out.Error.Code = e.message, e.kind, e.status
	if e.param != "" {
		out.Error.Param = &e.param
	}
	x.json(e.status, out)
}

func (x *exchange) flush() {
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
}

// die breaks the connection, or the HTTP/2 stream, and does not return.
func (x *exchange) die() {
	if conn, _, err := http.NewResponseController(x.w).Hijack(); err == nil {
		if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
			_ = tcp.SetLinger(0)
		}
		conn.Close()
	}
	panic(http.ErrAbortHandler)
}

var _ http.Handler = (*Server)(nil)
