package trace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// Trace is a workload: the requests that a service once had.
type Trace struct {
	// Calls are in the order of their time.
	Calls []Call
	// BlockTokens is the number of prompt tokens behind each of a call's blocks.
	BlockTokens int
	// Tick is the resolution of the calls' times: those of one tick came spread
	// over it. 0 = fine enough.
	Tick time.Duration
}

// Call is one request of a Trace.
type Call struct {
	At time.Duration // since the first call
	// Input and Output are tokens, as the engine counts them, at least 1.
	Input, Output int
	// Blocks are chained keys of the prompt's full blocks; see Job.Blocks.
	Blocks []uint64
	// Seen and Estimate are what an agent makes of the request: the blocks it
	// can see and the prompt tokens it reckons with.
	Seen     []uint64
	Estimate int
	Cut      bool // it does not see all
	// Session is a key of the conversation.
	Session    uint64
	HasSession bool
	// Stream is whether the answer is streamed: of one that is not, the proxy
	// sees the first byte at its end only.
	Stream bool
	// Band and Tenant are the request's in an admission. Group is by what
	// results are told apart.
	Band   int
	Tenant uint64
	Group  int
}

// Options say how an agent sees the requests of a trace.
type Options struct {
	// Visible is how many characters (bytes) of a request's text an agent
	// sees; it knows the length of all of it. 0 = all.
	Visible int
}

const (
	maxTraceLine  = 64 << 20 // bytes
	maxCallTokens = 1 << 24
	maxTraceTime  = 1e12 // milliseconds; above are dates, which count from the first
	// maxTick is the coarsest resolution of times that is believed: a trace
	// of one request a minute has a minute between requests, not in its clock.
	maxTick = 10 * time.Second
)

// Read reads a trace, one JSON object a line, in either of two forms:
// lengths and block ids as the Mooncake project publishes them, or real
// requests with their text. Errors name the line.
func Read(r io.Reader, o Options) (*Trace, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxTraceLine)
	p := traceParser{options: o}
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

// traceParser collects the lines of a trace.
type traceParser struct {
	options Options
	calls   []Call
	times   []float64 // milliseconds
	text    *textReader
	lengths bool // the lines hold lengths, not text
}

func (p *traceParser) trace() (*Trace, error) {
	if len(p.calls) == 0 {
		return nil, errors.New("trace: no request in it")
	}
	first := slices.Min(p.times)
	for i := range p.calls {
		p.calls[i].At = time.Duration((p.times[i] - first) * float64(time.Millisecond))
	}
	slices.SortStableFunc(p.calls, func(a, b Call) int { return cmp.Compare(a.At, b.At) })
	t := &Trace{Calls: p.calls, BlockTokens: textBlockTokens}
	if p.lengths {
		t.BlockTokens = mooncakeBlock
		t.Tick = tick(t.Calls)
		t.guessSessions()
		t.hide(p.options.Visible)
	}
	return t, nil
}

// tick is the usual distance between two times that differ, of a trace in
// which most calls share theirs with others: its clock is no finer. Times may
// be rounded to either side of a tick.
func tick(calls []Call) time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(calls); i++ {
		if d := calls[i].At - calls[i-1].At; d > 0 {
			gaps = append(gaps, d)
		}
	}
	if len(gaps) == 0 || 2*len(gaps) > len(calls) {
		return 0
	}
	slices.Sort(gaps)
	if d := gaps[len(gaps)/2]; d <= maxTick {
		return d
	}
	return 0
}

// Arrival is a call at its time in a replay.
type Arrival struct {
	At   time.Duration
	Call *Call
}

// Arrivals brings the calls to a mean of rate requests/s, keeping the shape of
// the trace and its order. The times of the calls of one tick are drawn from it.
func (t *Trace) Arrivals(rate float64, chance *rand.Rand) []Arrival {
	list := make([]Arrival, len(t.Calls))
	var drawn []time.Duration
	for i := 0; i < len(list); i += len(drawn) {
		at, n := t.Calls[i].At, 1
		for i+n < len(list) && t.Calls[i+n].At == at {
			n++
		}
		tick := t.Tick
		if i+n < len(list) {
			tick = min(tick, t.Calls[i+n].At-at)
		}
		drawn = drawn[:0]
		for range n {
			drawn = append(drawn, at+time.Duration(chance.Float64()*float64(tick)))
		}
		slices.Sort(drawn)
		for k, at := range drawn {
			list[i+k] = Arrival{at, &t.Calls[i+k]}
		}
	}
	first, span := list[0].At, list[len(list)-1].At-list[0].At
	for i := range list {
		if span == 0 {
			list[i].At = time.Duration(float64(i) / rate * float64(time.Second))
		} else {
			share := float64(list[i].At-first) / float64(span)
			list[i].At = time.Duration(share * float64(len(list)) / rate * float64(time.Second))
		}
	}
	return list
}
