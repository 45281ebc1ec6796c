package fakevllm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"pointsman/sim"
)

// Server is a replica that behaves like vLLM: it has its HTTP API, its metrics
// and its timing, with a sim.Engine in place of the model. It is safe for
// concurrent use.
//
// Clients can request failures with headers, or for the whole replica; see
// fault. Each answer carries X-Engine with the replica's name, X-Body-Sha256
// with the digest of the received body in hex, and X-Seen-Headers with the names
// of the received headers, sorted and in lower case.
type Server struct {
	o      Options
	intro  string // the first token of every answer
	ids    atomic.Uint64
	engine *engine   // the first of ranks
	ranks  []*engine // of data parallelism
	faults faults
	core   core
	legs   http.Client // to the replicas that compute prompts
}

// maxBody is the largest accepted request body in bytes.
const maxBody = 100 << 20

// New starts a replica; Close stops it. It panics if Options.Validate returns an
// error.
func New(o Options) *Server {
	o = o.withDefaults()
	s := &Server{o: o, intro: intro(o.Name), legs: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	for rank := range o.Ranks {
		e, err := newEngine(o.rank(rank))
		if err != nil {
			panic(err)
		}
		s.ranks = append(s.ranks, e)
	}
	s.engine = s.ranks[0]
	return s
}

// Publish opens the sockets for KV-cache events, if there are any. Close closes
// them.
func (s *Server) Publish() error {
	for _, e := range s.ranks {
		if e.events != nil {
			if err := e.events.open(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Batches returns the KV-cache event batches that are kept for a replay, encoded
// as they are published. There are none without Options.Events.
func (s *Server) Batches() (list [][]byte) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if p := s.engine.events; p != nil {
		p.log.Replay(0, func(_ uint64, payload []byte) { list = append(list, payload) })
	}
	return list
}

// Hold counts one more request as running until release is called, like a real engine with
// a request that it does not answer.
func (s *Server) Hold() (release func()) {
	s.engine.held.Add(1)
	return func() { s.engine.held.Add(-1) }
}

// Stats returns a snapshot of the engine, of several the first.
func (s *Server) Stats() sim.Stats { return s.engine.stats() }

// RankStats returns a snapshot of each engine.
func (s *Server) RankStats() (list []sim.Stats) {
	for _, e := range s.ranks {
		list = append(list, e.stats())
	}
	return list
}

// Close stops the engine and aborts the requests in flight. It may be called
// more than once.
func (s *Server) Close() {
	for _, e := range s.ranks {
		e.close()
	}
	s.legs.CloseIdleConnections()
}

// HTTPServer returns an HTTP server for this replica with plain-text HTTP/1.1
// and HTTP/2. The caller listens, serves and shuts it down.
func (s *Server) HTTPServer() *http.Server {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: s, Protocols: p, ReadHeaderTimeout: time.Minute,
		// In tests, clients often disconnect during a request.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// Serve runs a replica on l until the context is done. It opens the sockets for
// KV-cache events too, and closes l.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	s := New(o)
	defer s.Close()
	server := s.HTTPServer()
	defer server.Close()
	if err := s.Publish(); err != nil {
		l.Close()
		return err
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type route struct {
	method string
	handle func(*Server, *exchange)
}

var routes = map[string]route{
	"/v1/chat/completions":        {http.MethodPost, (*Server).chat},
	"/v1/completions":             {http.MethodPost, (*Server).completions},
	"/v1/embeddings":              {http.MethodPost, (*Server).embeddings},
	"/v1/models":                  {http.MethodGet, (*Server).models},
	"/health":                     {http.MethodGet, (*Server).health},
	"/version":                    {http.MethodGet, (*Server).version},
	"/metrics":                    {http.MethodGet, (*Server).serveMetrics},
	"/v1/responses":               {http.MethodPost, (*Server).responses},
	"/v1/messages":                {http.MethodPost, (*Server).messages},
	"/v1/chat/completions/render": {http.MethodPost, (*Server).render},
	"/v1/messages/render":         {http.MethodPost, renderMessages},
	"/v1/responses/render":        {http.MethodPost, renderResponses},
	"/v1/messages/count_tokens":   {http.MethodPost, countMessages},
	"/tokenize":                   {http.MethodPost, (*Server).tokenize},
	"/detokenize":                 {http.MethodPost, (*Server).detokenize},
	"/fake/fail":                  {http.MethodPost, (*Server).setFault},
	"/fake/reset":                 {http.MethodPost, (*Server).resetFault},
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{w: w, r: r, messages: r.URL.Path == "/v1/messages"}
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
		x.fail(badRequest("the body is incomplete"))
		return
	}
	h.Set("X-Body-Sha256", hex.EncodeToString(digest.Sum(nil)))

	found, ok := routes[r.URL.Path]
	if s.o.LlamaCpp {
		if own, differs := llamaRoutes[r.URL.Path]; differs {
			found, ok = own, own.handle != nil
		}
	}
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
		var refused *apiError
		if x.engine, refused = engineOf(s, r.Header); refused != nil {
			x.fail(refused)
			return
		}
		if found.method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/v1/") && s.core.isDead() {
			x.fail(coreDead)
			return
		}
	}
	if !prefill(s, x) {
		return
	}
	found.handle(s, x)
}

var _ http.Handler = (*Server)(nil)
