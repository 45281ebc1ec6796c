package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Trace is a workload: requests in the order of their arrival.
type Trace struct {
	Requests []Request
	// BlockTokens is the number of prompt tokens in each of a request's blocks.
	BlockTokens int
	// Tick is the resolution of the recorded times. A replay spreads the requests
	// of one tick over it. 0 means that the times are exact.
	Tick time.Duration
	// Recorded holds the figures of the recording; nil = none.
	Recorded *Recorded
	// Notes are assumptions of the reader, as sentences.
	Notes []string
}

// Recorded holds the figures that only pointsman's own recordings have.
type Recorded struct {
	Policy      string // "" = not known
	Shadow      bool   // the proxy balanced by itself
	Replicas    int    // 0 = not known
	CacheTokens int    // of each; 0 = not known
	Served      int
	Shed        int             // refused by the agent
	Unserved    int             // the others
	TTFT        []time.Duration // of streamed answers, sorted
}

// Request is one request of a Trace.
type Request struct {
	At time.Duration // since the first request
	// Input and Output are token counts as the engine sees them, at least 1.
	Input, Output int
	// MaxTokens is the longest answer that the client asked for; 0 means that it set no
	// limit.
	MaxTokens int
	// Blocks are the chained keys of the prompt's full blocks; see sim.Job.Blocks.
	Blocks []uint64
	// Visible and Estimate are what an agent extracts from the request: the
	// blocks that it can read and its estimate of the prompt tokens.
	Visible  []uint64
	Estimate int
	// Truncated is set when the agent cannot read the whole request.
	Truncated bool
	// Session identifies the conversation.
	Session    uint64
	HasSession bool
	// Stream is set when the answer is streamed. Without streaming the proxy
	// sees the first byte only at the end.
	Stream bool
	// Band and Tenant are the request's in the admission queue. Results are
	// also reported by Group.
	Band   int
	Tenant uint64
	Group  int
}

// Options describe how an agent sees the requests of a trace.
type Options struct {
	// VisibleChars is the number of leading characters (bytes) of a request
	// that an agent can read. It always knows the whole length. 0 means all.
	VisibleChars int
	// Pool selects the requests of one pool of a recording; "" = there is only
	// one.
	Pool string
}

const (
	maxTokens = 1 << 24 // prompt or output of one request
	// defaultOutput is the length of an answer in tokens if the trace does not
	// say it.
	defaultOutput = 256
	// maxTick is the coarsest clock that a trace is assumed to have: a trace of
	// one request per minute has a minute between requests, not in its clock.
	maxTick = 10 * time.Second
	// maxSpan bounds the time from the first request to the last: dates that
	// are further apart are in different units.
	maxSpan = 10 * 365 * 24 * time.Hour
)

// parser collects the requests of a trace.
type parser struct {
	options  Options
	form     form
	kind     kind // of the requests
	requests []Request
	unknown  []bool // by request: its output is not known
	times    []stamp
	text     *textReader
	notes    []string

	recording recording
	vllm      vllmLog
	sessions  bool // some request has one
}

// kind is the kind of data that the objects of a trace have.
type kind uint8

const (
	anyKind kind = iota
	lengthsKind
	textKind
	liteLLMKind
	vllmKind
)

// add adds a request. Its output is not known if it is negative.
func (p *parser) add(k kind, r Request, at stamp) error {
	if p.kind != anyKind && p.kind != k {
		return errors.New("not in the same form as the first request")
	}
	p.kind = k
	p.sessions = p.sessions || r.HasSession
	p.requests, p.times, p.unknown = append(p.requests, r), append(p.times, at), append(p.unknown, r.Output < 0)
	return nil
}

// trace completes the trace.
func (p *parser) trace() (*Trace, error) {
	if err := p.selectPool(); err != nil {
		return nil, err
	}
	if len(p.requests) == 0 {
		if p.vllm.lines > 0 {
			return nil, fmt.Errorf("a log of vLLM with %d requests and without their prompts: from version 0.11 on it has them with VLLM_LOGGING_LEVEL=DEBUG only", p.vllm.lines)
		}
		if p.recording.found {
			return nil, errors.New("a recording without any requests: none has ended while it ran")
		}
		return nil, errForm{"no requests"}
	}
	p.estimateOutputs()
	times := milliseconds(p.times)
	first := slices.Min(times)
	if slices.Max(times)-first > float64(maxSpan.Milliseconds()) {
		return nil, errors.New("the times of the requests are years apart: want the same unit for all")
	}
	for i := range p.requests {
		p.requests[i].At = time.Duration((times[i] - first) * float64(time.Millisecond))
	}
	t := &Trace{BlockTokens: textBlockTokens, Notes: p.notes}
	if p.kind == lengthsKind {
		t.BlockTokens = p.blockTokens()
	}
	slices.SortStableFunc(p.requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	t.Requests = p.requests
	switch {
	case p.recording.is():
		t.Recorded = p.recording.summary()
		t.wholeBlocks()
		t.extrapolate()
		t.Truncate(p.options.VisibleChars)
	case p.kind == lengthsKind:
		t.Tick = tick(t.Requests)
		if !p.sessions {
			t.inferSessions()
		}
		t.wholeBlocks()
		t.Truncate(p.options.VisibleChars)
	case p.kind == vllmKind:
		t.Tick = tick(t.Requests)
	case p.kind == liteLLMKind:
		t.dropSingleSessions()
	}
	return t, nil
}

// estimateOutputs gives the requests whose answers have no known length the median
// of the others'.
func (p *parser) estimateOutputs() {
	var known []int
	for i, r := range p.requests {
		if !p.unknown[i] {
			known = append(known, r.Output)
		}
	}
	assumed := defaultOutput
	if len(known) > 0 {
		slices.Sort(known)
		assumed = max(known[len(known)/2], 1)
	}
	for i := range p.requests {
		r := &p.requests[i]
		if p.unknown[i] {
			if r.Output = assumed; r.MaxTokens > 0 {
				r.Output = min(assumed, r.MaxTokens)
			}
		}
	}
}

// tick infers the resolution of the clock of a trace in which most requests
// share their timestamp with others: the median distance between two different
// timestamps, which may be rounded to either side of a tick. It returns 0 for
// other traces.
func tick(requests []Request) time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(requests); i++ {
		if d := requests[i].At - requests[i-1].At; d > 0 {
			gaps = append(gaps, d)
		}
	}
	if len(gaps) == 0 || 2*len(gaps) > len(requests) {
		return 0
	}
	slices.Sort(gaps)
	if d := gaps[len(gaps)/2]; d <= maxTick {
		return d
	}
	return 0
}

// Span is the time from the first request to the last.
func (t *Trace) Span() time.Duration { return t.Requests[len(t.Requests)-1].At }

// Rate is the mean of requests per second as recorded, 0 if the trace has no times.
func (t *Trace) Rate() float64 {
	if span := t.Span().Seconds(); span > 0 {
		return float64(len(t.Requests)) / span
	}
	return 0
}
