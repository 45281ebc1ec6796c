// Package tracing sends a span of each decision that is traced to a collector of
// OpenTelemetry, over OTLP/HTTP. A request never waits for it: what does not fit into
// a bounded queue is dropped and counted.
package tracing

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/intake"
	"pointsman/session"
)

// Options say where spans go and of which requests there are any.
type Options struct {
	Endpoint string // URL of the collector; without a path, /v1/traces is meant
	// Sample is the share of the requests without a traceparent, 0 to 1. Those with
	// one are traced if it says so.
	Sample  float64
	Version string // of the program
}

// Limits of what is kept and sent.
const (
	queueSize    = 2048 // spans
	mostBatch    = 512
	mostASecond  = 1000 // spans: clients may ask for each of theirs
	sendInterval = 2 * time.Second
	sendTimeout  = 10 * time.Second
	lastTimeout  = time.Second // at the end
)

// Counts are what became of spans, over all tracers of the process.
type Counts struct{ sent, dropped, failed *metrics.Counter }

// NewCounts registers counts in set.
func NewCounts(set *metrics.Set) *Counts {
	return &Counts{
		sent:    set.NewCounter("pointsman_spans_sent_total"),
		dropped: set.NewCounter("pointsman_spans_dropped_total"),
		failed:  set.NewCounter("pointsman_spans_failed_total"),
	}
}

// Tracer is an intake.Tracer.
type Tracer struct {
	sample   uint64 // a random number below it is traced
	queue    chan event
	counts   *Counts
	exporter *exporter
	log      *slog.Logger

	second atomic.Int64 // Unix time of the count
	traced atomic.Int64 // in that second

	quit    chan struct{}
	stopped chan struct{}
}

// event is a decision, for the goroutine that makes its span. Its strings are those of
// the configuration, and the words of decisions.
type event struct {
	intake.Span
	end                     time.Time
	proxy, operation, model string
	pool, server, why       string
	fallbacks               [2]string
	band                    string
	wait                    time.Duration
	status                  int
	input, output           int
	stream, unsteered       bool
}

// Start returns a tracer that sends until Stop. It does not wait for the collector.
func Start(o Options, counts *Counts, log *slog.Logger) (*Tracer, error) {
	e, err := newExporter(o)
	if err != nil {
		return nil, err
	}
	t := &Tracer{
		sample: share(o.Sample), queue: make(chan event, queueSize), counts: counts, exporter: e, log: log,
		quit: make(chan struct{}), stopped: make(chan struct{}),
	}
	go t.run()
	return t, nil
}

// share is a share of all random numbers.
func share(f float64) uint64 {
	if f >= 1 {
		return math.MaxUint64
	}
	return uint64(max(f, 0) * (1 << 63) * 2)
}

// Stop sends what waits, for a second at most.
func (t *Tracer) Stop() {
	close(t.quit)
	<-t.stopped
}

var traceparent = session.NewHeaders([]string{"traceparent"})

// Begin implements intake.Tracer.
func (t *Tracer) Begin(headers []byte) *intake.Span {
	if v, ok := traceparent.Find(headers); ok {
		if p, ok := parse(v); ok {
			if !p.sampled {
				return nil
			}
			return &intake.Span{Start: time.Now(), Trace: p.trace, Parent: p.span}
		}
	}
	if rand.Uint64() >= t.sample {
		return nil
	}
	return &intake.Span{Start: time.Now()}
}

// Answered implements intake.Tracer.
func (t *Tracer) Answered(s *intake.Span, r *intake.Request, proxy string) {
	d := &r.Decision
	e := event{
		Span: *s, end: time.Now(), proxy: proxy, operation: r.Operation(), model: r.Model,
		pool: d.Pool, server: d.Server, why: d.Why, fallbacks: d.Fallbacks, band: d.Band, wait: d.Wait, status: d.Status,
		input: r.Input, output: r.Output, stream: r.Stream, unsteered: d.Unsteered,
	}
	if !t.allowed(e.end.Unix()) {
		t.counts.dropped.Inc()
		return
	}
	select {
	case t.queue <- e:
	default:
		t.counts.dropped.Inc()
	}
}

// allowed counts a span of a second, and reports whether there may be one more.
func (t *Tracer) allowed(second int64) bool {
	if was := t.second.Load(); was != second && t.second.CompareAndSwap(was, second) {
		t.traced.Store(0)
	}
	return t.traced.Add(1) <= mostASecond
}

// run makes spans of events and sends them.
func (t *Tracer) run() {
	defer close(t.stopped)
	ticker := time.NewTicker(sendInterval)
	defer ticker.Stop()
	for {
		select {
		case e := <-t.queue:
			if t.exporter.add(&e); t.exporter.waiting() >= mostBatch {
				t.send(sendTimeout)
			}
		case <-ticker.C:
			t.send(sendTimeout)
		case <-t.quit:
			for {
				select {
				case e := <-t.queue:
					t.exporter.add(&e)
					continue
				default:
				}
				break
			}
			t.send(lastTimeout)
			t.exporter.close()
			return
		}
	}
}

// send sends the spans that wait. Those that the collector does not take are lost.
func (t *Tracer) send(limit time.Duration) {
	n := t.exporter.waiting()
	if n == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	go func() { // the end does not wait for a collector that hangs
		select {
		case <-t.quit:
			time.AfterFunc(lastTimeout, cancel)
		case <-ctx.Done():
		}
	}()
	err := t.exporter.send(ctx)
	if err != nil {
		t.counts.failed.Add(n)
		t.log.Debug("spans were not sent", "spans", n, "error", err)
		return
	}
	t.counts.sent.Add(n)
}

var _ intake.Tracer = (*Tracer)(nil)
