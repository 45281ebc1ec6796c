package nginx

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/link"
	"pointsman/listen"
	"pointsman/templates"
)

// Feed reads the log lines that nginx sends by syslog over UDP, and reports
// outcomes to the decider. The goroutine that reads a line handles it, unless a pool is
// locked or other lines wait: then the line goes to a bounded queue, so that the socket is
// always emptied. Lines that do not fit there are dropped and counted. Feed never writes.
type Feed struct {
	decider *decider.Decider
	servers *Servers
	link    *link.Link
	agent   string // host:port of Agent; "" when it listens on a unix socket
	log     *slog.Logger
	port    atomic.Int64 // of the socket; 0 before there is one
	queue   chan *datagram
	waiting atomic.Int64 // lines of the queue that are not handled yet
	lines   sync.Mutex   // held while a line is handled
	free    sync.Pool
	broken  brokenAnswers

	// Other, unless nil, gets each line that is not nginx's. It must not keep the
	// line, and reports whether the line was its own. It is set before Serve.
	Other func(line []byte) bool

	Lines     *metrics.Counter // ours, understood
	Ignored   *metrics.Counter // anything else
	Dropped   *metrics.Counter // the queue was full
	Malformed *metrics.Counter // ours by their beginning, but not understood

	mu      sync.Mutex
	conns   map[net.PacketConn]struct{}
	closed  bool
	reads   sync.WaitGroup
	handler sync.WaitGroup
	once    sync.Once
}

// maxLine bounds a line of the feed in bytes; ours have some 500.
const maxLine = 4096

// queued is how many lines may wait: about a second at nginx's full speed.
const queued = 16 << 10

type datagram struct {
	n    int
	text [maxLine]byte
}

// NewFeed returns a Feed that reports outcomes to d and metrics to set. agent is
// the address of Agent if it listens on TCP, else "". Close ends the feed.
func NewFeed(d *decider.Decider, s *Servers, k *link.Link, agent string, set *metrics.Set, log *slog.Logger) *Feed {
	f := &Feed{
		decider: d, servers: s, link: k, agent: agent, log: log,
		queue:     make(chan *datagram, queued),
		free:      sync.Pool{New: func() any { return new(datagram) }},
		Lines:     set.NewCounter(`pointsman_feed_lines_total{proxy="nginx"}`),
		Ignored:   set.NewCounter(`pointsman_feed_ignored_total{proxy="nginx"}`),
		Dropped:   set.NewCounter(`pointsman_feed_dropped_total{proxy="nginx"}`),
		Malformed: set.NewCounter(`pointsman_feed_malformed_total{proxy="nginx"}`),
		conns:     map[net.PacketConn]struct{}{},
	}
	set.NewGauge(`pointsman_feed_queue{proxy="nginx"}`, func() float64 { return float64(len(f.queue)) })
	set.NewGauge(`pointsman_feed_lost_total{proxy="nginx"}`, func() float64 { return float64(kernelDrops(int(f.port.Load()))) })
	return f
}

// Serve reads from c until Close. It returns nil after Close.
func (f *Feed) Serve(c net.PacketConn) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return c.Close()
	}
	f.conns[c] = struct{}{}
	f.reads.Add(1)
	f.mu.Unlock()
	defer f.reads.Done()
	f.once.Do(func() { f.handler.Go(f.handle) })

	u, ok := c.(*net.UDPConn)
	if !ok {
		return fmt.Errorf("a feed from %T", c)
	}
	growReceiveBuffer(u)
	if a, ok := u.LocalAddr().(*net.UDPAddr); ok {
		f.port.Store(int64(a.Port))
	}
	in, d := listen.NewDatagrams(u), f.free.Get().(*datagram)
	for {
		n, err := in.Read(d.text[:])
		if err != nil {
			if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			continue // an error of another socket, such as port unreachable
		}
		if f.handleNow(d.text[:n]) {
			continue
		}
		d.n = n
		f.waiting.Add(1)
		select {
		case f.queue <- d:
			d = f.free.Get().(*datagram)
		default:
			f.waiting.Add(-1)
			f.Dropped.Inc()
		}
	}
}

// handleNow handles a line in the goroutine that has read it: to wake another one costs more
// than the line. It returns false if that would have to wait for a pool or for other lines.
func (f *Feed) handleNow(line []byte) bool {
	if f.waiting.Load() > 0 || f.decider.Locked() || !f.lines.TryLock() {
		return false
	}
	defer f.lines.Unlock()
	f.line(line)
	return true
}

// drainPause is how long a datagram may take that is on its way at the end.
const drainPause = 20 * time.Millisecond

// Close reads the lines that have arrived, closes the sockets and handles the lines.
func (f *Feed) Close() {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.closed = true
	for c := range f.conns {
		if c.SetReadDeadline(time.Now().Add(drainPause)) != nil {
			c.Close()
		}
	}
	f.mu.Unlock()
	f.reads.Wait()
	for c := range f.conns {
		c.Close()
	}
	close(f.queue)
	f.handler.Wait()
}

// handle handles the lines of the queue until it is closed.
func (f *Feed) handle() {
	for d := range f.queue {
		f.lines.Lock()
		f.line(d.text[:d.n])
		f.lines.Unlock()
		f.waiting.Add(-1)
		f.free.Put(d)
	}
}

// line handles one line. It never passes nginx's lines to another proxy's parser: clients
// write parts of its error log.
func (f *Feed) line(datagram []byte) {
	tag, text, ok := untag(datagram)
	switch {
	case ok && bytes.Equal(tag, accessTag):
		l, ok := parse(text)
		if !ok {
			f.Malformed.Inc()
			return
		}
		f.Lines.Inc()
		if len(l.addresses) == 0 && l.status == 500 {
			f.link.Saw(link.Lost) // a location leads to one of ours that its server has not
			return
		}
		f.link.LineRead(time.Now())
		f.finished(&l)
	case ok && bytes.Equal(tag, errorTag):
		b, ok := parseBrokenAnswer(text)
		if !ok {
			f.Ignored.Inc()
			return
		}
		f.Lines.Inc()
		f.broken.add(b, time.Now())
	case !ok && f.Other != nil && f.Other(datagram):
	default:
		f.Ignored.Inc()
	}
}

// finished reports how the request of l ended.
func (f *Feed) finished(l *line) {
	answered := f.answered(*l)
	o, pool := f.outcome(l)
	decided := f.servers.table.Load().byUpstream[string(l.server)]
	f.link.Ended(answered, decided.replica != "" && len(o.Server) > 0 && string(o.Server) != decided.replica)
	// nginx may have gone on without a decision that came too late, and that was made in
	// another pool than the one that served.
	if len(l.server) == 0 && (pool == nil || !pool.Holds(o.ID)) {
		late := o
		late.Server = nil
		if f.decider.FinishedIfReserved(late) {
			return
		}
	}
	if pool == nil {
		f.decider.Finished(o)
		return
	}
	pool.Finished(o)
}

// outcome returns how the request of l ended, and in which pool if known. It
// consumes the lists of l.
func (f *Feed) outcome(l *line) (decider.Outcome, *decider.Pool) {
	t := f.servers.table.Load()
	decided := t.byUpstream[string(l.server)] // of the last decision
	o, pool := decider.Outcome{ID: decider.ParseID(l.id)}, decided.pool

	// The last try that was not a question served the request or failed.
	last := f.skipQuestions(l)
	if len(last) == 0 {
		if l.status == 502 {
			f.link.Saw(link.Unserved)
		}
		if o.End = decider.Denied; l.status == 499 {
			o.End = decider.ClientGone
		}
		return o, pool
	}
	o.End, o.Status, o.Bytes = l.end(), l.lastStatus(), l.lastLength()
	if o.End == decider.Served && f.broken.remove(l.pid, l.conn, last, time.Now()) {
		o.End = decider.Died
	}
	l.drop()
	o.Redispatched = len(f.skipQuestions(l)) > 0
	served, known := t.at(last, pool, decided.replica)
	if !known && !o.Redispatched {
		served = decided // under an address that nginx resolved itself
	}
	if served.replica != "" {
		o.Server = []byte(served.replica)
	}
	if pool == nil {
		pool = served.pool
	}
	return o, pool
}

// answered reports whether the first question of l got an answer.
func (f *Feed) answered(l line) (ok bool) {
	for len(l.addresses) > 0 {
		_, last := lastTry(l.addresses)
		if f.isAgent(last) {
			status := l.lastStatus()
			ok = status != 502 && status != 504
		}
		l.drop()
	}
	return ok
}

// skipQuestions drops the last tries of l while they are questions to the agent.
// It returns the address of the try that is then the last, or nothing.
func (f *Feed) skipQuestions(l *line) []byte {
	for len(l.addresses) > 0 {
		_, last := lastTry(l.addresses)
		if len(last) > 0 && !f.isAgent(last) {
			return last
		}
		l.drop()
	}
	return nil
}

// isAgent reports whether a try was a question. nginx logs the name of the
// upstream instead of an address when all its servers are unavailable.
func (f *Feed) isAgent(address []byte) bool {
	return bytes.HasPrefix(address, unixPrefix) || string(address) == f.agent || string(address) == templates.NginxAgent
}

var unixPrefix = []byte("unix:")
