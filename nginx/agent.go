package nginx

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/valyala/fasthttp"

	"pointsman/decider"
	"pointsman/intake"
	"pointsman/link"
	"pointsman/listen"
	"pointsman/templates"
)

// Agent answers nginx's questions. A question is the client's own request with
// its whole body and a few headers of ours. The answer has no body. It names the
// upstream in X-Pointsman-Server and the location to go on with in
// X-Accel-Redirect. On any error, the answer lets nginx balance by itself. Agent
// is safe for concurrent use.
type Agent struct {
	intake  *intake.Intake
	servers *Servers
	link    *link.Link
	log     *slog.Logger
	http    *fasthttp.Server
	options atomic.Pointer[Options]

	latency   *metrics.PrometheusHistogram
	malformed *metrics.Counter // questions that were not HTTP
	abandoned *metrics.Counter // questions that nginx broke off because the client left
	panics    *metrics.Counter
	retries   *metrics.Counter // questions after a failed try
	clipped   *metrics.Counter // bodies kept in part for lack of memory

	conns   *listen.Group
	memory  atomic.Int64 // bytes of bodies
	held    sync.WaitGroup
	scratch sync.Pool
	spare   sync.Pool // body buffers of held requests
}

// Options are settings that may change while the agent runs.
type Options struct {
	// Head is how many bytes of a body are examined, in addition to its tail.
	Head int
	// RetrySent allows a second replica for a request that the first one may
	// have begun.
	RetrySent bool
	// MostHeld is how many answers may be held at the same time. The connection
	// limit grows by it.
	MostHeld int
	// RefuseUnreadable answers 400 to questions that cannot be read. Otherwise nginx
	// balances them by itself, past an admission and budgets.
	RefuseUnreadable bool
	// Budgets adds what a prompt costs to the answers.
	Budgets bool
	// ResponseHeaders names the pools whose responses carry the band and the time
	// that the request was held.
	ResponseHeaders map[string]bool
}

// Limits of the agent's memory: connections, the buffer of each, and the bodies
// in memory at the same time. A body beyond that limit is examined in part.
const (
	maxConns   = 4096
	readBuffer = 40 << 10 // a request's headers; nginx takes 32 KiB of a client's
	maxMemory  = 256 << 20
	smallHead  = 64 << 10  // of a body, when there is little memory
	leastHead  = 4 << 10   // when there is none
	keptHead   = 256 << 10 // the largest buffer that is kept between requests
	tailSize   = 32 << 10
)

const writeTimeout = 10 * time.Second

// NewAgent returns an Agent that hands requests to in and reports to set.
func NewAgent(in *intake.Intake, s *Servers, k *link.Link, o Options, set *metrics.Set, log *slog.Logger) *Agent {
	a := &Agent{
		intake: in, servers: s, link: k, log: log,
		latency:   set.NewPrometheusHistogramExt(`pointsman_decision_seconds{proxy="nginx"}`, intake.DecisionBuckets),
		malformed: set.NewCounter("pointsman_nginx_malformed_total"),
		abandoned: set.NewCounter("pointsman_nginx_abandoned_total"),
		panics:    set.NewCounter("pointsman_nginx_panics_total"),
		retries:   set.NewCounter("pointsman_nginx_second_questions_total"),
		clipped:   set.NewCounter("pointsman_nginx_clipped_bodies_total"),
	}
	a.scratch.New = func() any { return &scratch{agent: a} }
	a.options.Store(&o)
	a.conns = listen.NewGroup("nginx", maxConns+o.MostHeld, log)
	k.Connections = func() int { return a.conns.Stats().Open }
	set.NewGauge("pointsman_nginx_connections", func() float64 { return float64(a.conns.Stats().Open) })
	set.NewGauge("pointsman_nginx_refused_total", func() float64 { return float64(a.conns.Stats().Refused) })
	set.NewGauge("pointsman_nginx_body_bytes", func() float64 { return float64(a.memory.Load()) })
	a.http = &fasthttp.Server{
		Handler:                      a.handle,
		ErrorHandler:                 a.unreadable,
		Logger:                       noLog{},
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		MaxRequestBodySize:           1 << 40, // nginx has set its own bound
		ReadBufferSize:               readBuffer,
		ReadTimeout:                  10 * time.Second,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  5 * time.Minute,
		Concurrency:                  math.MaxInt32, // conns bounds it, by closing: fasthttp would answer 503, which nginx passes on
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
	}
	return a
}

// Set changes the options.
func (a *Agent) Set(o Options) {
	a.options.Store(&o)
	a.conns.SetLimit(maxConns + o.MostHeld)
}

// Serve answers on l until Shutdown.
func (a *Agent) Serve(l net.Listener) error { return a.http.Serve(lending{a.conns.Listener(l)}) }

// Shutdown stops accepting and waits for the answers under way.
func (a *Agent) Shutdown(ctx context.Context) error {
	if err := a.http.ShutdownWithContext(ctx); err != nil {
		return err
	}
	sent := make(chan struct{})
	go func() { a.held.Wait(); close(sent) }()
	select {
	case <-sent:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// scratch holds what one decision needs. It is reused between requests.
type scratch struct {
	agent    *Agent
	request  intake.Request
	buffers  // nil while the request is held
	text     []byte
	borrowed int64 // of Agent.memory
	hold
}

// handle answers one question.
func (a *Agent) handle(ctx *fasthttp.RequestCtx) {
	s := a.scratch.Get().(*scratch)
	if s.head == nil {
		if b, ok := a.spare.Get().(*buffers); ok {
			s.buffers = *b
		}
	}
	defer a.end(ctx, s)
	if !ctx.IsPost() {
		if list := a.intake.Models(); list != nil && ctx.IsGet() && string(path(ctx.Request.Header.RequestURI())) == templates.ModelsPath {
			ctx.SetContentType("application/json")
			ctx.Response.SetBodyRaw(list)
			return
		}
		balance(&ctx.Response)
		return
	}
	o := a.options.Load()
	size, tail, err := a.readBody(ctx, s, o.Head)
	if err != nil {
		a.abandoned.Inc()
		ctx.SetConnectionClose()
		balance(&ctx.Response)
		return
	}
	if size == 0 {
		balance(&ctx.Response)
		return
	}
	start := time.Now()
	h := &ctx.Request.Header
	in := intake.Input{
		ID:      h.Peek("X-Pointsman-Id"),
		Pool:    h.Peek("X-Pointsman-Pool"),
		Path:    path(ctx.Request.Header.RequestURI()),
		Headers: h.RawHeaders(),
		Body:    s.head, BodySize: size, Tail: tail,
	}
	tried := h.Peek("X-Pointsman-Exclude")
	if len(tried) == 0 {
		a.link.Asked(start)
	}
	if len(tried) > 0 && !a.retry(ctx, &in, tried, o) {
		return
	}
	if a.intake.Handle(&s.request, in, s) {
		// Held: the wait does not count as latency of the agent.
		a.latency.Update(time.Since(start).Seconds())
		a.keep(ctx, s)
		return
	}
	a.answer(&ctx.Response, h.Peek("X-Pointsman-Target"), s)
	a.latency.Update(time.Since(start).Seconds())
}

// retry records that the first replica failed the request. It reports false when
// it has answered because the first replica may have begun the request.
func (a *Agent) retry(ctx *fasthttp.RequestCtx, in *intake.Input, tried []byte, o *Options) bool {
	a.retries.Inc()
	status, sent := failure(ctx.Request.Header.Peek("X-Pointsman-Failed"))
	if sent && (!o.RetrySent || status == fasthttp.StatusGatewayTimeout) {
		// The log line that nginx writes next ends the reservation.
		refuse(&ctx.Response, max(status, fasthttp.StatusBadGateway), templates.NginxBroken)
		return false
	}
	where, ok := a.servers.table.Load().byUpstream[string(tried)]
	if !ok || where.replica == "" {
		return true
	}
	end := decider.Refused
	if sent {
		end = decider.Died
	}
	where.pool.Failed(decider.ParseID(in.ID), where.replica, end)
	in.Exclude = where.replica
	return true
}

// failure parses "$upstream_status|$upstream_connect_time", whose last elements
// belong to the failed try. The request was sent if there was a connection.
func failure(s []byte) (status int, sent bool) {
	statuses, connects, _ := bytes.Cut(s, bar)
	_, last := lastTry(statuses)
	status, _ = strconv.Atoi(string(last))
	_, last = lastTry(connects)
	return status, len(last) > 0 && !bytes.Equal(last, none)
}

var bar, none = []byte{'|'}, []byte{'-'}

// answer gives nginx the decision. next is the location that it goes on with.
func (a *Agent) answer(resp *fasthttp.Response, next []byte, s *scratch) {
	d := &s.request.Decision
	s.budgetHeaders(resp)
	a.intake.Answered(&s.request, "nginx")
	if d.Status != 0 {
		if d.Retry > 0 {
			resp.Header.Set("Retry-After", strconv.Itoa(d.Retry))
		}
		s.text = appendRefusal(s.text[:0], d.Status, d.Reason, s.request.OfMessages())
		refuse(resp, d.Status, string(s.text))
		return
	}
	if d.Unsteered && (s.request.Fixed || len(a.intake.Decider().Pools()) == 1) {
		balance(resp) // as without the agent: there is no pool
		return
	}
	// Without a server, or with one that nginx has no upstream for: the whole pool.
	t := a.servers.table.Load()
	word := t.upstream(d.Pool, d.Server)
	if word == "" {
		word = t.upstream(d.Pool, "")
	}
	if word == "" {
		balance(resp)
		return
	}
	if len(next) == 0 || next[0] != '@' {
		next = firstTarget
	}
	resp.Header.SetBytesV("X-Accel-Redirect", next)
	resp.Header.Set("X-Pointsman-Server", word)
	if a.options.Load().Budgets {
		s.number(resp, "X-Pointsman-Input-Tokens", int64(d.Input))
		s.number(resp, "X-Pointsman-Cost", int64(d.Cost))
	}
	if d.Rank != "" {
		resp.Header.Set("X-Pointsman-Rank", d.Rank)
	}
	if d.Prefill != "" {
		resp.Header.Set("X-Pointsman-Prefill", d.Prefill)
	}
	if d.Band != "" && a.options.Load().ResponseHeaders[d.Pool] {
		resp.Header.Set("X-Pointsman-Band", d.Band)
		s.number(resp, "X-Pointsman-Wait-Ms", d.Wait.Milliseconds())
	}
}

var firstTarget = []byte(templates.NginxTarget)

// balance lets nginx go on without a decision.
func balance(resp *fasthttp.Response) {
	resp.Header.Set("X-Accel-Redirect", templates.NginxFallback)
}

// refuse answers instead of a replica.
func refuse(resp *fasthttp.Response, status int, body string) {
	resp.SetStatusCode(status)
	resp.Header.SetContentType("application/json")
	resp.SetBodyString(body)
}

// end returns the scratch to its pool. After a panic nginx balances by itself.
func (a *Agent) end(ctx *fasthttp.RequestCtx, s *scratch) {
	if r := recover(); r != nil {
		a.panicked(r)
		ctx.Response.Reset()
		ctx.SetConnectionClose() // the body may not have been read
		balance(&ctx.Response)
		a.memory.Add(-s.borrowed)
		return // and s is lost with whatever it holds
	}
	if ctx.Hijacked() {
		return // held: s is given back when the answer is sent
	}
	a.release(s)
	a.scratch.Put(s)
}

func (a *Agent) panicked(r any) {
	a.panics.Inc()
	a.log.Error("panic while deciding", "proxy", "nginx", "panic", r)
}

// unreadable answers input that is no question: not HTTP, or headers too long.
func (a *Agent) unreadable(ctx *fasthttp.RequestCtx, _ error) {
	a.malformed.Inc()
	ctx.Response.Reset()
	if a.options.Load().RefuseUnreadable {
		refuse(&ctx.Response, fasthttp.StatusBadRequest, string(appendRefusal(nil, fasthttp.StatusBadRequest, "", false)))
		return
	}
	balance(&ctx.Response)
}

// path is the request's URI as received, without its query.
func path(uri []byte) []byte {
	before, _, _ := bytes.Cut(uri, question)
	return before
}

var question = []byte{'?'}

// noLog drops fasthttp's log: one line for each connection that breaks.
type noLog struct{}

func (noLog) Printf(string, ...any) {}
