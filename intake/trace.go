package intake

import (
	"time"

	"pointsman/prompt"
)

// Tracer makes spans of decisions. Both methods are called for each request, by several
// goroutines: they never block, and allocate nothing for a request that is not traced.
type Tracer interface {
	// Begin is called with the request's headers before it is read. It returns nil for a
	// request that is not traced.
	Begin(headers []byte) *Span
	// Answered is called once for each traced request when its answer is ready.
	Answered(s *Span, r *Request, proxy string)
}

// Span is the part of a traced request that is known before its decision.
type Span struct {
	Start  time.Time
	Trace  [16]byte // of the span that the request names; zero = it names none
	Parent [8]byte
}

// SetTracer makes t trace the requests from now on; nil = none.
func (i *Intake) SetTracer(t Tracer) {
	if t == nil {
		i.tracer.Store(nil)
		return
	}
	i.tracer.Store(&t)
}

// begin starts the span of a request, if it is traced.
func (i *Intake) begin(r *Request, headers []byte) {
	r.span = nil
	if t := i.tracer.Load(); t != nil {
		r.span = (*t).Begin(headers)
	}
}

// Answered ends the span of a request whose decision is about to be sent. The agent of
// each proxy calls it once for each request that it has handled.
func (i *Intake) Answered(r *Request, proxy string) {
	if r.span == nil {
		return
	}
	if t := i.tracer.Load(); t != nil {
		(*t).Answered(r.span, r, proxy)
	}
	r.span = nil
}

// Operation is the kind of request, in the terms of OpenTelemetry's conventions for
// generative AI; "" = none of them.
func (r *Request) Operation() string {
	switch r.endpoint {
	case prompt.ChatCompletions, prompt.Responses, prompt.Messages:
		return "chat"
	case prompt.Completions:
		return "text_completion"
	case prompt.Embeddings:
		return "embeddings"
	}
	return ""
}
