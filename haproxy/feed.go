package haproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/link"
	"pointsman/listen"
)

// Feed reads the log lines that HAProxy's ring sends over TCP, each preceded by its
// length (RFC 6587, octet counting), and reports outcomes to the decider. It never
// writes. Input that it cannot read ends that connection only: the ring keeps its
// lines and connects again. ServeDatagrams receives what the ring cannot send.
type Feed struct {
	decider *decider.Decider
	link    *link.Link
	log     *slog.Logger

	Lines     *metrics.Counter // ours, understood
	Ignored   *metrics.Counter // of other traffic
	Malformed *metrics.Counter // connections closed for broken framing
	Recovered *metrics.Counter // ends that only a datagram reported
	set       *metrics.Set
	ttft      sync.Map // pool name → *metrics.PrometheusHistogram

	accepted *listen.Group
	evicted  listen.BurstLog

	datagramPoll time.Duration
	onDatagram   func([]byte)
	watching     sync.Mutex // held while watch decides

	mu          sync.Mutex
	conns       map[net.Conn]*atomic.Int64 // when its last line came, since begun
	ls          map[net.Listener]struct{}
	packets     []net.PacketConn
	polled      []*listen.Polled
	watchUntil  time.Time    // until when datagrams wake the agent in any case
	pendingEnds []pendingEnd // by time
	closed      bool
	begun       time.Time
	closing     atomic.Int64 // until when lines are read at the end, since begun; 0 = it goes on
	wg          sync.WaitGroup
}

// TTFTBuckets are the bounds, in seconds, of the histogram of times to first
// byte.
var TTFTBuckets = []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60, 120}

// maxLine bounds a line of the feed, in bytes. HAProxy cuts lines at the ring's
// maxlen, which the templates set to a fraction of this.
const maxLine = 64 << 10

// maxFeedConns bounds the connections of rings: one for each HAProxy process,
// and two while it is reloaded. Each takes a buffer of maxLine. A connection above
// the bound replaces the one that has been silent for longest, so that connections
// which only wait cannot keep HAProxy out.
const maxFeedConns = 256

// A connection is closed after feedIdle without a line, and lineTime after the
// beginning of a line that does not end. HAProxy connects again.
const (
	feedIdle = 5 * time.Minute
	lineTime = 10 * time.Second
)

// NewFeed returns a Feed that reports outcomes to d and metrics to set.
func NewFeed(d *decider.Decider, k *link.Link, set *metrics.Set, log *slog.Logger) *Feed {
	f := &Feed{
		decider: d, link: k, log: log, set: set,
		Lines:     set.NewCounter(`pointsman_feed_lines_total{proxy="haproxy"}`),
		Ignored:   set.NewCounter(`pointsman_feed_ignored_total{proxy="haproxy"}`),
		Malformed: set.NewCounter(`pointsman_feed_malformed_total{proxy="haproxy"}`),
		Recovered: set.NewCounter(`pointsman_feed_recovered_total{proxy="haproxy"}`),
		accepted:  listen.NewGroup("feed", 2*maxFeedConns, log),
		conns:     map[net.Conn]*atomic.Int64{}, begun: time.Now(), ls: map[net.Listener]struct{}{},

		datagramPoll: datagramPoll,
	}
	f.onDatagram = func(b []byte) { f.HandleDatagram(b) }
	k.FeedConnections = func() int { return f.accepted.Stats().Open }
	set.NewGauge(`pointsman_feed_connections{proxy="haproxy"}`, func() float64 { return float64(f.accepted.Stats().Open) })
	return f
}

// Serve accepts connections from l until Close. It returns nil after Close.
func (f *Feed) Serve(l net.Listener) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return l.Close()
	}
	l = f.accepted.Listener(l)
	f.ls[l] = struct{}{}
	f.mu.Unlock()
	for {
		c, err := l.Accept()
		if err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.closed {
				return nil
			}
			delete(f.ls, l)
			return err
		}
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			c.Close()
			continue
		}
		used := new(atomic.Int64)
		used.Store(int64(time.Since(f.begun)))
		if len(f.conns) >= maxFeedConns {
			f.evict()
		}
		f.conns[c] = used
		f.wg.Add(1)
		f.mu.Unlock()
		go f.serve(c, used)
	}
}

// evict closes the connection that has been silent for longest. The caller holds
// the lock.
func (f *Feed) evict() {
	var oldest net.Conn
	since := int64(math.MaxInt64)
	for c, used := range f.conns {
		if n := used.Load(); n < since {
			oldest, since = c, n
		}
	}
	delete(f.conns, oldest)
	f.evicted.Warn(f.log, "too many feed connections: the one that was silent for longest is closed", "limit", maxFeedConns)
	oldest.Close()
}

// At its end the feed reads the lines that have arrived, until none comes for drainPause,
// and for drainMost at most: the proxy will not send them again.
const (
	drainPause = 20 * time.Millisecond
	drainMost  = 300 * time.Millisecond
)

// Close stops accepting, reads the lines that have arrived, closes the connections and
// waits for their readers. Ends that only a datagram has reported so far count.
func (f *Feed) Close() {
	defer f.Recover(time.Now().Add(time.Hour))
	f.mu.Lock()
	f.closed = true
	f.closing.Store(int64(time.Since(f.begun) + drainMost))
	for l := range f.ls {
		l.Close()
	}
	for c := range f.conns {
		c.SetReadDeadline(time.Now().Add(drainPause))
	}
	for _, c := range f.packets {
		c.Close()
	}
	polled := f.polled
	f.mu.Unlock()
	f.wg.Wait()
	for _, p := range polled {
		for range 64 { // more than its buffer holds
			if p.Drain(f.onDatagram) {
				break
			}
		}
		p.Close()
	}
}

func (f *Feed) serve(c net.Conn, used *atomic.Int64) {
	if tcp, ok := c.(*listen.Conn).Conn.(*net.TCPConn); ok {
		// HAProxy gets a reset however this process ends. HAProxy 3.0 ignores an
		// orderly close: its ring would never connect again.
		if err := tcp.SetLinger(0); err != nil {
			f.log.Debug("feed connection", "error", err)
		}
	}
	defer func() {
		c.Close()
		f.mu.Lock()
		delete(f.conns, c)
		f.watchUntil = time.Now().Add(watchTime)
		f.mu.Unlock()
		f.watch(time.Now())
		f.wg.Done()
	}()
	var late lateness
	err := readLines(c, func(text []byte) {
		used.Store(int64(time.Since(f.begun)))
		f.line(text, &late)
	}, func(d time.Duration) {
		f.drain()
		c.SetReadDeadline(time.Now().Add(d))
		if by := f.closing.Load(); by != 0 { // read after the deadline above was set: Close may have come before
			c.SetReadDeadline(f.begun.Add(min(time.Duration(by), time.Since(f.begun)+drainPause)))
		}
	})
	var lost *net.OpError // the proxy went away, as at a reload, or Close was called
	if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &lost) {
		f.Malformed.Inc()
		f.log.Warn("feed connection closed", "proxy", "haproxy", "error", err)
	}
}

// readLines hands each line of r to line, which must not keep it. Before it waits, it calls
// within with the longest time that it will wait.
func readLines(r io.Reader, line func([]byte), within func(time.Duration)) error {
	in := bufio.NewReaderSize(r, maxLine+16)
	for {
		if in.Buffered() == 0 {
			within(feedIdle)
		}
		n, err := readLength(in)
		if err != nil {
			return err
		}
		if in.Buffered() < n {
			within(lineTime)
		}
		text, err := in.Peek(n)
		if err != nil {
			return err
		}
		line(text)
		if _, err := in.Discard(n); err != nil {
			return err
		}
	}
}

// readLength reads the decimal length of the next line and the space after it.
func readLength(in *bufio.Reader) (n int, err error) {
	for digits := 0; ; digits++ {
		c, err := in.ReadByte()
		switch {
		case err != nil:
			return 0, err
		case c == ' ' && digits > 0:
			return n, nil
		case c < '0' || c > '9':
			return 0, errors.New("a line does not begin with its length: the ring's server needs log-proto octet-count")
		}
		if n = 10*n + int(c-'0'); n > maxLine {
			return 0, fmt.Errorf("a line of more than %d bytes", maxLine)
		}
	}
}

// line handles one line of the feed. late follows the delay of its ring.
func (f *Feed) line(text []byte, late *lateness) {
	l, ok := parse(text)
	if !ok {
		f.Ignored.Inc()
		f.bypassed(&l)
		return
	}
	f.Lines.Inc()
	f.link.LineRead(time.Now())
	p := f.decider.PoolNamed(l.pool)
	switch {
	case l.event == closed:
		if l.unasked() && !f.link.Excused() && f.link.Unasked() {
			f.bypass(&l)
		}
		f.link.Ended(!l.failed, l.decided != nil && l.server != nil && !bytes.Equal(l.decided, l.server))
		o := l.outcome()
		if p == nil {
			f.decider.Finished(o)
			return
		}
		if ttft := p.Finished(o); ttft > 0 && o.End == decider.Served {
			f.histogram(p.Name()).Update(ttft.Seconds())
		}
	case p == nil:
	case l.event == connected:
		p.Connected(decider.ParseID(l.rid), l.server)
	case l.event == first && l.tFirst == 0: // the headers only, from a replica that was not decided
		p.Connected(decider.ParseID(l.rid), l.server)
	case l.event == first && l.status >= 400: // the first byte of an error, and no token
	case l.event == first:
		p.FirstToken(decider.ParseID(l.rid), l.server)
		p.Delayed(late.of(time.Duration(l.tFirst)*time.Microsecond, time.Since(f.begun)))
	}
}

// unasked reports whether a request got its id and reached a replica, but nothing
// shows that the agent was asked.
func (l *line) unasked() bool {
	return l.whole && l.post && l.server != nil && l.decided == nil && !l.erred
}

// bypassed counts the request of a line without an id if it reached a replica of a
// pool, or another backend with a chat: HAProxy's configuration does not ask for it.
func (f *Feed) bypassed(l *line) {
	if l.whole && l.event == closed && l.post && l.server != nil && len(l.rid) == 0 && (l.chat || f.decider.PoolNamed(l.pool) != nil) {
		f.bypass(l)
	}
}

func (f *Feed) bypass(l *line) {
	if name, first := f.link.Bypassed(l.frontend); first {
		f.log.Warn("requests reach a pool without a question to the agent", "proxy", "haproxy", "frontend", name, "backend", string(l.pool),
			"remedy", "`pointsman check --haproxy-config FILE` names the line")
	}
}

func (f *Feed) histogram(pool string) *metrics.PrometheusHistogram {
	if h, ok := f.ttft.Load(pool); ok {
		return h.(*metrics.PrometheusHistogram)
	}
	h := f.set.GetOrCreatePrometheusHistogramExt(`pointsman_ttft_seconds{pool="`+pool+`"}`, TTFTBuckets)
	f.ttft.Store(pool, h)
	return h
}
