package trace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
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
}

// Request is one request of a Trace.
type Request struct {
	At time.Duration // since the first request
	// Input and Output are token counts as the engine sees them, at least 1.
	Input, Output int
	// MaxTokens is the longest answer that the client asked for; 0 means that it
	// did not say.
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
}

const (
	maxLine   = 64 << 20 // bytes
	maxTokens = 1 << 24  // prompt or output of one request
	// maxTime is in milliseconds. Larger timestamps are dates; only their
	// distance from the first one counts.
	maxTime = 1e12
	// maxTick is the coarsest clock that a trace is assumed to have: a trace of
	// one request per minute has a minute between requests, not in its clock.
	maxTick = 10 * time.Second
)

// Read reads a trace with one JSON object per line, in one of two forms: token
// counts and block ids as published by the Mooncake project, or requests with
// their text. Errors name the line.
func Read(r io.Reader, o Options) (*Trace, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	p := parser{options: o}
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := p.line(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("trace: line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return p.trace()
}

// ReadFile is Read on the file at path.
func ReadFile(path string, o Options) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, o)
}

// parser collects the lines of a trace.
type parser struct {
	options  Options
	requests []Request
	times    []float64 // milliseconds
	text     *textReader
	mooncake bool // the lines hold token counts, not text
}

func (p *parser) trace() (*Trace, error) {
	if len(p.requests) == 0 {
		return nil, errors.New("trace: no requests")
	}
	first := slices.Min(p.times)
	for i := range p.requests {
		p.requests[i].At = time.Duration((p.times[i] - first) * float64(time.Millisecond))
	}
	slices.SortStableFunc(p.requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	t := &Trace{Requests: p.requests, BlockTokens: textBlockTokens}
	if p.mooncake {
		t.BlockTokens = mooncakeBlock
		t.Tick = tick(t.Requests)
		t.inferSessions()
		t.Truncate(p.options.VisibleChars)
	}
	return t, nil
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
