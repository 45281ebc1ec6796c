// Package record writes what became of requests to files and streams: lengths,
// times, and hashes of prompts and sessions that only the same recording can
// compare. It holds no prompt text, session id or key, and never makes a decision
// wait.
package record

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
)

// Recorder takes in what became of the requests of a decider, for any number of
// recordings. It is safe for concurrent use.
type Recorder struct {
	decider *decider.Decider
	epoch   time.Time // when the decider's clock was 0

	mu   sync.Mutex // of changes
	list atomic.Pointer[[]*queue]

	recorded, dropped, failed *metrics.Counter
}

// Bounds of what waits to be written, for each recording. A request beyond them is
// dropped.
const (
	maxWaiting = 4096
	maxKeys    = 2 << 20 // block keys
	keptKeys   = 4096    // the largest buffer of keys that is kept
)

// MaxStreams bounds the recordings at the same time, besides that of the
// configuration.
const MaxStreams = 4

// New returns a Recorder that reports to set. epoch is when d's clock was 0.
func New(d *decider.Decider, epoch time.Time, set *metrics.Set) *Recorder {
	r := &Recorder{
		decider: d, epoch: epoch,
		recorded: set.NewCounter("pointsman_recorded_total"),
		dropped:  set.NewCounter("pointsman_record_dropped_total"),
		failed:   set.NewCounter("pointsman_record_failed_writes_total"),
	}
	r.list.Store(new([]*queue))
	set.NewGauge("pointsman_recordings", func() float64 { return float64(len(*r.list.Load())) })
	return r
}

// errMany refuses a recording.
var errMany = errors.New("too many recordings at the same time")

// open begins a recording. Requests that end from now on come to its queue.
func (r *Recorder) open(bounded bool) (*queue, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := *r.list.Load()
	if bounded && len(old) >= MaxStreams {
		return nil, errMany
	}
	q := &queue{recorder: r, entries: make(chan *entry, maxWaiting), isClosed: make(chan struct{})}
	next := append(slices.Clone(old), q)
	r.list.Store(&next)
	r.decider.SetRecorder(r)
	return q, nil
}

// Close ends all recordings. What waits is still written.
func (r *Recorder) Close() {
	for _, q := range *r.list.Load() {
		q.close()
	}
}

// Record implements decider.Recorder.
func (r *Recorder) Record(e *decider.Ended) {
	for _, q := range *r.list.Load() {
		q.add(e)
	}
}

// queue is what waits to be written of one recording.
type queue struct {
	recorder *Recorder
	entries  chan *entry
	keys     atomic.Int64 // of blocks, in entries
	isClosed chan struct{}
	once     sync.Once
}

// close ends the recording.
func (q *queue) close() {
	q.once.Do(func() {
		r := q.recorder
		r.mu.Lock()
		defer r.mu.Unlock()
		next := slices.DeleteFunc(slices.Clone(*r.list.Load()), func(other *queue) bool { return other == q })
		r.list.Store(&next)
		if len(next) == 0 {
			r.decider.SetRecorder(nil)
		}
		close(q.isClosed)
	})
}

// entry is a copy of what a pool reported.
type entry struct {
	decider.Ended
	request decider.Request // its numbers and constant strings
	keys    []uint64
}

var entries = sync.Pool{New: func() any { return new(entry) }}

// add copies e, or drops it. It is called with the pool locked.
func (q *queue) add(e *decider.Ended) {
	n := int64(len(e.Blocks))
	if q.keys.Add(n) > maxKeys {
		q.keys.Add(-n)
		q.recorder.dropped.Inc()
		return
	}
	c := entries.Get().(*entry)
	c.Ended, c.request, c.keys = *e, *e.Request, append(c.keys[:0], e.Blocks...)
	c.Request, c.Blocks = nil, nil
	c.request.Pool, c.request.Prompt, c.request.Blocks, c.request.TextBlocks = nil, nil, nil, nil
	select {
	case q.entries <- c:
	default:
		q.release(c)
		q.recorder.dropped.Inc()
	}
}

// release gives back an entry that was written or dropped.
func (q *queue) release(c *entry) {
	q.keys.Add(-int64(len(c.keys)))
	if cap(c.keys) > keptKeys {
		c.keys = nil
	}
	c.keys = c.keys[:0]
	entries.Put(c)
}

var _ decider.Recorder = (*Recorder)(nil)
