package nginx

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/templates"
)

// Feed reads the log lines that nginx sends by syslog over UDP, and tells the
// decider what they say. The socket is emptied by a loop that does nothing
// else; what it reads goes through a bounded queue, beyond which lines are
// dropped and counted. It never writes.
type Feed struct {
	decider *decider.Decider
	servers *Servers
	agent   string // host:port, where it is no unix socket
	log     *slog.Logger
	port    atomic.Int64 // of the socket; 0 before there is one
	queue   chan *datagram
	free    sync.Pool
	breaks  breaks

	// Other, unless nil, is given each line that is not nginx's, before Serve
	// it must be set. It must not keep the line, and reports whether it is its.
	Other func(line []byte) bool

	Lines     *metrics.Counter // ours, understood
	Ignored   *metrics.Counter // anything else
	Dropped   *metrics.Counter // the queue was full
	Malformed *metrics.Counter // began as ours

	mu     sync.Mutex
	conns  map[net.PacketConn]struct{}
	closed bool
	reads  sync.WaitGroup
	tells  sync.WaitGroup
	once   sync.Once
}

// maxLine bounds a line of the feed in bytes; ours have some 500.
const maxLine = 4096

// queued is how many lines may wait: a second or so at nginx's full speed.
const queued = 16 << 10

type datagram struct {
	n    int
	text [maxLine]byte
}

// NewFeed returns a Feed that tells d and reports to set. agent is the address
// of Agent where it listens on TCP, else "". Close ends the feed.
func NewFeed(d *decider.Decider, s *Servers, agent string, set *metrics.Set, log *slog.Logger) *Feed {
	f := &Feed{
		decider: d, servers: s, agent: agent, log: log,
		queue:     make(chan *datagram, queued),
		free:      sync.Pool{New: func() any { return new(datagram) }},
		Lines:     set.NewCounter(`pointsman_feed_lines_total{proxy="nginx"}`),
		Ignored:   set.NewCounter(`pointsman_feed_ignored_total{proxy="nginx"}`),
		Dropped:   set.NewCounter(`pointsman_feed_dropped_total{proxy="nginx"}`),
		Malformed: set.NewCounter(`pointsman_feed_malformed_total{proxy="nginx"}`),
		conns:     map[net.PacketConn]struct{}{},
	}
	set.NewGauge(`pointsman_feed_queue{proxy="nginx"}`, func() float64 { return float64(len(f.queue)) })
	set.NewGauge(`pointsman_feed_lost_total{proxy="nginx"}`, func() float64 { return float64(dropped(int(f.port.Load()))) })
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
	f.once.Do(func() { f.tells.Go(f.tell) })

	u, ok := c.(*net.UDPConn)
	if !ok {
		return fmt.Errorf("a feed from %T", c)
	}
	grow(u)
	if a, ok := u.LocalAddr().(*net.UDPAddr); ok {
		f.port.Store(int64(a.Port))
	}
	d := f.free.Get().(*datagram)
	for {
		n, _, err := u.ReadFromUDPAddrPort(d.text[:])
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			continue // an error that is another's, such as a port unreachable
		}
		d.n = n
		select {
		case f.queue <- d:
			d = f.free.Get().(*datagram)
		default:
			f.Dropped.Inc()
		}
	}
}

// Close ends the sockets and tells what has been read.
func (f *Feed) Close() {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.closed = true
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.reads.Wait()
	close(f.queue)
	f.tells.Wait()
}

// tell tells the decider what the queue holds, until it is closed.
func (f *Feed) tell() {
	for d := range f.queue {
		f.line(d.text[:d.n])
		f.free.Put(d)
	}
}

// line tells the decider one line.
func (f *Feed) line(text []byte) {
	l, ok := parse(text)
	if ok {
		f.Lines.Inc()
		f.finished(&l)
		return
	}
	if b, ok := parseBreak(text); ok {
		f.Lines.Inc()
		f.breaks.add(b, time.Now())
		return
	}
	if bytes.Contains(text, []byte(`{"id":"`)) {
		f.Malformed.Inc()
		return
	}
	if f.Other != nil && f.Other(text) {
		return
	}
	f.Ignored.Inc()
}

// finished tells how the request of l ended.
func (f *Feed) finished(l *line) {
	o, pool := f.outcome(l)
	// Where nginx took no decision, one may have been made too late, and in
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

// outcome is how the request of l ended, in which pool as far as known. It takes
// the lists of l apart.
func (f *Feed) outcome(l *line) (decider.Outcome, *decider.Pool) {
	t := f.servers.table.Load()
	decided := t.byWord[string(l.server)] // what the last decision named
	o, pool := decider.Outcome{ID: decider.ParseID(l.id)}, decided.pool

	// The last try that was no question served, or failed.
	last := f.skipQuestions(l)
	if len(last) == 0 {
		if o.End = decider.Denied; l.status == 499 {
			o.End = decider.ClientGone
		}
		return o, pool
	}
	o.End = l.end()
	if o.End == decider.Served && f.breaks.take(l.pid, l.conn, last, time.Now()) {
		o.End = decider.Died
	}
	l.drop()
	o.Redispatched = len(f.skipQuestions(l)) > 0
	served, known := t.at(last, pool)
	if !known && !o.Redispatched {
		served = decided // under an address that nginx has looked up
	}
	if served.replica != "" {
		o.Server = []byte(served.replica)
	}
	if pool == nil {
		pool = served.pool
	}
	return o, pool
}

// skipQuestions drops the last tries of l as long as they are questions to the
// agent, and returns the address of the one then last, or nothing.
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

// isAgent reports whether a try was a question. The name of the upstream stands
// for its address when all its servers are taken out.
func (f *Feed) isAgent(address []byte) bool {
	return bytes.HasPrefix(address, unixPrefix) || string(address) == f.agent || string(address) == templates.NginxAgent
}

var unixPrefix = []byte("unix:")
