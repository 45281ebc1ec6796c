// Package haproxy speaks to HAProxy: it turns SPOE messages into requests and
// decisions into variables, feed lines into outcomes, and follows the servers'
// state through the runtime API.
package haproxy

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/intake"
	"pointsman/link"
	"pointsman/spoa"
	"pointsman/templates"
)

// Agent answers HAProxy's questions. Handle is safe for concurrent use.
type Agent struct {
	Processes *Processes // of HAProxy that have asked

	intake  *intake.Intake
	link    *link.Link
	latency *metrics.PrometheusHistogram
	calls   sync.Pool
	room    int // bytes of a body that HAProxy's buffer holds in any case
}

// NewAgent returns an Agent that hands requests to in and reports to set. bufsize is
// HAProxy's tune.bufsize in bytes, as it should be; 0 = not known.
func NewAgent(in *intake.Intake, l *link.Link, bufsize int, set *metrics.Set) *Agent {
	a := &Agent{
		Processes: NewProcesses(),

		intake:  in,
		link:    l,
		room:    templates.LimitsOf(bufsize).MaxBody * 3 / 4, // less where headers are long
		latency: set.NewPrometheusHistogramExt(`pointsman_decision_seconds{proxy="haproxy"}`, intake.DecisionBuckets),
	}
	a.calls.New = func() any {
		s := &call{agent: a}
		s.request.BeforeWait = s.beforeWait
		return s
	}
	return a
}

// call holds what one decision needs. It is reused between requests.
type call struct {
	agent   *Agent
	request intake.Request
	message *spoa.Message // during Handle
	later   spoa.Later
	ready   atomic.Int32 // counts later and the decision: a held request is answered when both are there
}

// beforeWait lets the connection read on while the request waits for an engine.
func (s *call) beforeWait() { s.message.Block() }

// Decided implements decider.Waiter.
func (s *call) Decided() { s.partDone() }

// partDone is called twice: when the decision is made and when the answer can wait
// for it. The second call sends the answer.
func (s *call) partDone() {
	if s.ready.Add(1) == 2 {
		go s.send() // the pool is locked, or the Handler still runs
	}
}

// send answers a held request.
func (s *call) send() {
	s.later.Send(func(w *spoa.Reply) { s.agent.answer(w, &s.request) })
	s.later = spoa.Later{}
	s.ready.Store(0)
	s.agent.calls.Put(s)
}

// Handle is the spoa.Handler of the message that asks for a decision, and of the one that
// asks for the list of models.
func (a *Agent) Handle(m *spoa.Message, w *spoa.Reply) {
	if m.Name() == templates.ModelsMessage {
		a.listModels(w)
		return
	}
	start := time.Now()
	a.link.Asked(start)
	s := a.calls.Get().(*call)
	s.message = m
	in := a.input(m)
	a.examine(&in)
	if a.intake.Handle(&s.request, in, s) {
		// Held: the wait does not count as latency of the agent.
		a.latency.Update(time.Since(start).Seconds())
		s.later = m.Later()
		s.partDone()
		return
	}
	a.answer(w, &s.request)
	a.calls.Put(s)
	a.latency.Update(time.Since(start).Seconds())
}

// listModels answers with the models of all pools. HAProxy's answer to its client has to
// fit into one buffer, with its headers, and so does ours.
func (a *Agent) listModels(w *spoa.Reply) {
	if list := a.intake.Models(); list != nil && 2*len(list) <= w.Room() {
		w.SetString("models", string(list))
	}
}

// examine looks for signs of a question that HAProxy's configuration asks in the
// wrong way.
func (a *Agent) examine(in *intake.Input) {
	if len(in.ID) == 0 {
		a.link.Saw(link.Nameless)
	}
	if seen := len(in.Body) + len(in.Tail); seen < in.BodySize && seen < a.room {
		a.link.Saw(link.Cut)
	}
}

// answer sets the variables of the contract and notes an answer without a replica.
func (a *Agent) answer(w *spoa.Reply, r *intake.Request) {
	if r.Decision.Status == 0 && r.Decision.Server == "" {
		a.link.Undecided()
	}
	a.intake.Answered(r, "haproxy")
	answer(w, r)
}

// input reads the arguments of the message. The templates name them.
func (a *Agent) input(m *spoa.Message) intake.Input {
	in := intake.Input{
		Origin:  a.Processes.of(m),
		ID:      m.Bytes("rid"),
		Pool:    m.Bytes("pool"),
		Path:    m.Bytes("path"),
		Headers: m.Bytes("hdrs"),
		Body:    m.Bytes("body"),
		Tail:    m.Bytes("tail"),
		Model:   m.Bytes("model"),
	}
	if in.Body == nil {
		in.Body = m.Bytes("head") // with large buffers, where head and tail are sent
	}
	// req.body_size is the Content-Length; a chunked body counts only as far
	// as it has come, and then req.body_len is all there is to know.
	size, _ := m.Int("bsize")
	length, _ := m.Int("blen")
	in.BodySize = int(max(size, length))
	if len(in.Body)+len(in.Tail) == in.BodySize {
		if whole := m.Join("head", "tail"); whole != nil {
			in.Body, in.Tail = whole, nil
		}
	}
	return in
}

// answer sets the variables of the contract. It does not set variables that do not apply,
// so that the rules of the proxy can test for their presence.
func answer(w *spoa.Reply, r *intake.Request) {
	d := &r.Decision
	set := func(name, v string) {
		if v != "" {
			w.SetString(name, v)
		}
	}
	set("why", d.Why)
	set("model", r.Model)
	if d.Band != "" {
		w.SetString("band", d.Band)
		w.SetInt("wait", d.Wait.Milliseconds())
	}
	if b := &r.Budget; b.Tokens > 0 {
		w.SetInt("limit_tokens", b.Tokens)
		w.SetInt("remaining_tokens", b.Remaining)
		w.SetInt("reset_tokens", int64(b.Reset))
	}
	if d.Status != 0 {
		w.SetInt("status", int64(d.Status))
		w.SetString("reason", d.Reason)
		if d.Retry > 0 {
			w.SetInt("retry_after", int64(d.Retry))
		}
		return
	}
	set("pool", d.Pool)
	set("server", d.Server)
	set("rank", d.Rank)
	set("prefill", d.Prefill)
	if d.Server != "" {
		w.SetInt("input_tokens", int64(d.Input))
		w.SetInt("cost", int64(d.Cost))
	}
	set("fallback1", d.Fallbacks[0])
	set("fallback2", d.Fallbacks[1])
	switch {
	case d.Ordered:
		w.SetInt("prio", int64(d.Class))
		w.SetInt("offset", int64(d.Offset))
	case r.Queued:
		// HAProxy's classes reach from -2047 to 2047, the lowest first, as
		// vLLM's priorities do.
		w.SetInt("prio", int64(max(-2047, min(2047, r.Priority))))
	}
}
