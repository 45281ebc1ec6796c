// Package admin is the agent's endpoint for operators and their tools: metrics, health, the
// last decisions, explanations and status. It knows no prompt text, session id or key, so
// it cannot show any.
package admin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/bytedance/sonic"
	"github.com/valyala/fasthttp"

	"pointsman/admin/exposition"
	"pointsman/admin/page"
	"pointsman/cluster"
	"pointsman/decider"
	"pointsman/decider/budget"
	"pointsman/intake"
	"pointsman/link"
	"pointsman/record"
	"pointsman/state"
)

// maxExplain bounds the body of /explain, in bytes.
const maxExplain = 16 << 20

// MaxConns bounds the connections of the admin endpoint.
const MaxConns = 256

// Server is the admin endpoint. It is safe for concurrent use.
type Server struct {
	intake   *intake.Intake
	decider  *decider.Decider // of intake
	set      *metrics.Set
	version  string
	draining atomic.Bool

	// Hosts are further names that requests may use for it, besides addresses and names
	// without a dot. They are set before Serve.
	Hosts []string

	// Refusals, unless nil, returns what HAProxy refuses, for /status. It is set
	// before Serve.
	Refusals func() []string

	// RuntimeAPI, unless nil, returns why HAProxy's runtime API does not answer, "" if it
	// does. It is set before Serve.
	RuntimeAPI func() string

	// State, unless nil, returns the status of the memory that survives a restart, for
	// /status. It is set before Serve.
	State func() state.Status
	// Restored, unless nil, reports whether that memory is in the pools, or is no longer
	// waited for, for /readyz. It is set before Serve.
	Restored func() bool

	// Signals, unless nil, returns what the engines report, for /signals. It is
	// set before Serve.
	Signals func() any
	// Recorder, unless nil, records for /record. It is set before Serve.
	Recorder *record.Recorder
	// Links are the connections to proxies, for /status and /metrics. They are set
	// before Serve.
	Links []*link.Link
	// Cluster, unless nil, is what the agent shares with others. It is set before
	// Serve.
	Cluster *cluster.Node

	ui

	http *fasthttp.Server
}

// New returns a Server that reports on in, its decider and the metrics of set.
func New(in *intake.Intake, set *metrics.Set, version string) *Server {
	s := &Server{intake: in, decider: in.Decider(), set: set, version: version, ui: ui{started: time.Now()}}
	s.http = &fasthttp.Server{
		Name:               "pointsman",
		Handler:            s.handle,
		ReadTimeout:        10 * time.Second,
		WriteTimeout:       10 * time.Second,
		IdleTimeout:        time.Minute,
		MaxRequestBodySize: maxExplain,
		Concurrency:        MaxConns,
		CloseOnShutdown:    true,
	}
	return s
}

// Serve answers on l until Shutdown.
func (s *Server) Serve(l net.Listener) error { return s.http.Serve(l) }

// Drain makes /readyz answer 503 from now on.
func (s *Server) Drain() { s.draining.Store(true) }

// Shutdown stops the server after the requests under way.
func (s *Server) Shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.http.ShutdownWithContext(ctx)
}

const index = `pointsman %s

GET  /                 the status page, for browsers
GET  /metrics          Prometheus metrics
GET  /healthz          200 while the process runs
GET  /readyz           200 while it decides, 503 while it drains, restores its memory or joins a cluster
GET  /status           pools and replicas, JSON
GET  /autoscale        load and recommended replicas of each pool, JSON; ?pool=NAME for one
GET  /signals          what the engines report, JSON
GET  /config           the configuration in force, YAML
GET  /debug/decisions  the last decisions of each pool, JSON; ?pool=NAME for one
POST /debug/watch      follow the next request of ?session=ID; GET returns its outcome, JSON
POST /record           a trace of the traffic without text or ids, for ?for=1h, JSON lines
POST /debug/explain    why the body would go where, JSON; ?path=/v1/… names the API
`

func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	defer func() {
		if r := recover(); r != nil { // of a policy that explains itself
			ctx.Error(fmt.Sprintf("panic: %v\n", r), fasthttp.StatusInternalServerError)
		}
	}()
	if !s.addressed(ctx) {
		ctx.Error("this host name is not the agent's: use its address, or list the name in listen.admin_hosts\n", fasthttp.StatusMisdirectedRequest)
		return
	}
	allowed := ctx.IsGet() || ctx.IsHead()
	switch string(ctx.Path()) {
	case "/debug/explain", "/record":
		allowed = ctx.IsPost()
	case "/debug/watch":
		allowed = allowed || ctx.IsPost()
	}
	if !allowed {
		ctx.Error("method not allowed\n", fasthttp.StatusMethodNotAllowed)
		return
	}
	if ctx.IsPost() && !isJSON(ctx.Request.Header.ContentType()) {
		ctx.Error("want Content-Type: application/json\n", fasthttp.StatusUnsupportedMediaType)
		return
	}
	ctx.Response.Header.Set("X-Content-Type-Options", "nosniff")
	if s.answerPage(ctx, string(ctx.Path())) {
		return
	}
	switch string(ctx.Path()) {
	case "/metrics":
		ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
		var b bytes.Buffer
		writeBuild(&b, s.version)
		s.set.WritePrometheus(&b)
		writeDecider(&b, s.intake)
		writeBudgets(&b, s.decider.Budgets)
		for _, l := range s.links() {
			l.WriteMetrics(&b)
		}
		if s.Cluster != nil {
			s.Cluster.WriteMetrics(&b)
		}
		metrics.WriteProcessMetrics(&b)
		metrics.WriteFDMetrics(&b)
		ctx.SetBody(exposition.Complete(nil, b.Bytes()))
	case "/healthz":
		fmt.Fprintln(ctx, "ok")
	case "/readyz":
		if s.draining.Load() {
			ctx.Error("draining\n", fasthttp.StatusServiceUnavailable)
			return
		}
		if s.Restored != nil && !s.Restored() {
			ctx.Error("waiting for the replicas, to restore what is known of them\n", fasthttp.StatusServiceUnavailable)
			return
		}
		if s.Cluster != nil && !s.Cluster.IsReady() {
			ctx.Error("asking the other agents what they know\n", fasthttp.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(ctx, "ready")
	case "/status":
		writeJSON(ctx, s.status())
	case "/autoscale":
		s.autoscale(ctx)
	case "/signals":
		if s.Signals == nil {
			ctx.Error("not found\n", fasthttp.StatusNotFound)
			return
		}
		writeJSON(ctx, s.Signals())
	case "/usage":
		s.usage(ctx)
	case "/debug/decisions":
		writeJSON(ctx, s.decisions(string(ctx.QueryArgs().Peek("pool"))))
	case "/debug/explain":
		s.explain(ctx)
	case "/debug/watch":
		s.watch(ctx)
	case "/record":
		if s.Recorder == nil {
			ctx.Error("not found\n", fasthttp.StatusNotFound)
			return
		}
		s.record(ctx)
	default:
		ctx.Error("not found\n", fasthttp.StatusNotFound)
	}
}

// Status is the answer of /status.
type Status struct {
	Version string               `json:"version"`
	Pools   []decider.PoolStatus `json:"pools"`
	// Refusals are the changes of servers that HAProxy refuses, in its own words.
	Refusals []string `json:"runtime_api_refusals,omitempty"`
	// RuntimeAPI is why HAProxy's runtime API does not answer, and a remedy.
	RuntimeAPI string        `json:"runtime_api_problem,omitempty"`
	Proxies    []link.Status `json:"proxies"`
	// Cluster is nil when the agent shares nothing.
	Cluster *cluster.Status `json:"cluster,omitempty"`
	// Budgets is nil when no tokens are counted.
	Budgets *budget.Status `json:"budgets,omitempty"`
	// State describes the memory that survives a restart, nil if there is none.
	State *state.Status `json:"state,omitempty"`
}

func (s *Server) links() []link.Status {
	now, list := time.Now(), []link.Status{}
	for _, l := range s.Links {
		list = append(list, l.Status(now))
	}
	return list
}

func (s *Server) status() Status {
	st := Status{Version: s.version, Pools: s.pools(), Proxies: s.links(), Budgets: s.decider.Budgets.Status()}
	if s.Cluster != nil {
		c := s.Cluster.Status()
		st.Cluster = &c
	}
	if s.Refusals != nil {
		st.Refusals = s.Refusals()
	}
	if s.RuntimeAPI != nil {
		st.RuntimeAPI = s.RuntimeAPI()
	}
	if s.State != nil {
		kept := s.State()
		st.State = &kept
	}
	return st
}

func (s *Server) decisions(pool string) []decider.Record {
	out := []decider.Record{}
	for _, p := range s.decider.Pools() {
		if pool == "" || p.Name() == pool {
			out = append(out, p.Records()...)
		}
	}
	return out
}

// autoscale answers how many replicas each pool needs, or the one that the query names.
func (s *Server) autoscale(ctx *fasthttp.RequestCtx) {
	if name := ctx.QueryArgs().Peek("pool"); len(name) > 0 {
		p := s.decider.PoolNamed(name)
		if p == nil {
			ctx.Error("no such pool\n", fasthttp.StatusNotFound)
			return
		}
		writeJSON(ctx, p.Autoscale())
		return
	}
	list := []decider.Autoscale{}
	for _, p := range s.decider.Pools() {
		list = append(list, p.Autoscale())
	}
	writeJSON(ctx, list)
}

// explain answers where a request would go, and why. The request is described
// by the body, by the headers with a prefix, and by the query.
func (s *Server) explain(ctx *fasthttp.RequestCtx) {
	var r intake.Request
	headers, err := clientHeaders(ctx)
	if err != nil {
		ctx.Error(err.Error()+"\n", fasthttp.StatusBadRequest)
		return
	}
	html := ctx.QueryArgs().Has("html") // for the status page
	body := ctx.PostBody()
	in := intake.Input{
		Path:    ctx.QueryArgs().Peek("path"),
		Pool:    ctx.QueryArgs().Peek("pool"),
		Headers: headers,
		Body:    body, BodySize: len(body),
	}
	known := len(in.Pool) == 0 || s.decider.PoolNamed(in.Pool) != nil
	if !known || !s.intake.Read(&r, in) || !s.intake.Prepare(&r) {
		refused := &r.Decision
		if !known {
			*refused = decider.Decision{Status: fasthttp.StatusNotFound, Why: "no_pool", Reason: fmt.Sprintf("There is no pool %.64q.", in.Pool)}
		}
		if html {
			var b bytes.Buffer
			s.html(ctx, &b, page.WriteRefusal(&b, refused.Status, cmp.Or(refused.Reason, refused.Why)))
			return
		}
		ctx.SetStatusCode(refused.Status)
		writeJSON(ctx, map[string]any{"status": refused.Status, "why": refused.Why, "reason": refused.Reason})
		return
	}
	x := r.Pool.Explain(&r.Request)
	if v := s.intake.Budget(&r, &in); v.Limit != "" {
		x.Budget = &v
	}
	if html {
		var b bytes.Buffer
		s.html(ctx, &b, page.WriteExplanation(&b, &x))
		return
	}
	writeJSON(ctx, x)
}

// clientHeaders are the headers of the request to explain: those of this request whose
// names begin with "Explain-", without that prefix.
func clientHeaders(ctx *fasthttp.RequestCtx) ([]byte, error) {
	const prefix = "explain-"
	var b []byte
	for line := range strings.SplitSeq(string(ctx.Request.Header.RawHeaders()), "\n") {
		if len(line) > len(prefix) && strings.EqualFold(line[:len(prefix)], prefix) {
			b = append(append(b, line[len(prefix):]...), '\n')
		}
	}
	if len(b) > 64<<10 {
		return nil, errors.New("too many headers")
	}
	return b, nil
}

func writeJSON(ctx *fasthttp.RequestCtx, v any) {
	ctx.SetContentType("application/json")
	b, err := sonic.ConfigStd.Marshal(v)
	if err != nil {
		ctx.Error(err.Error()+"\n", fasthttp.StatusInternalServerError)
		return
	}
	ctx.SetBody(append(b, '\n'))
}
