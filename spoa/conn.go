package spoa

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/negasus/haproxy-spoe-go/frame"
	"github.com/negasus/haproxy-spoe-go/worker"
)

const (
	inSize = 8 << 10 // bytes a connection reads at once; larger frames get a buffer of their own

	outKeep = 64 << 10 // bytes of scratch a connection keeps between frames

	// maxInFlight bounds the frames of one connection that wait for their
	// handler. HAProxy sends at most max-waiting-frames, 20 unless configured,
	// and opens connections for further ones: one for almost each frame whose
	// answer is held. A place's number must fit into one byte of SPOP's varint.
	maxInFlight = 32

	frameTimeout  = 5 * time.Second        // for the whole of a frame from its first byte on, and for HELLO
	drainQuiet    = 10 * time.Millisecond  // a draining connection is done when nothing comes for so long
	drainFor      = time.Second            // at most so long are frames accepted from a draining connection
	lingerFor     = 200 * time.Millisecond // for the peer to close after it was told goodbye
	farewellLimit = 100 * time.Millisecond // for writing the goodbye
)

// place is a NOTIFY frame in flight. The library sees the number of the place
// instead of the stream identifier, so that the handler and the ACK find it
// whatever identifiers the peer sends; the ACK gets the true one back.
type place struct {
	stream uint64
	held   *held // nil if the library has the whole frame
}

// conn stands between the library and the socket. The library reads from it in
// one goroutine and writes to it in many.
type conn struct {
	sock net.Conn
	srv  *Server

	// Of the reading goroutine alone.
	in      []byte // in[r:w] is read from the socket and not yet used; nil while none is
	whole   *held  // the memory of in
	r, w    int
	raw     syscall.RawConn // of sock, nil if it has none
	look    func(fd uintptr) bool
	got     int       // what look has read,
	gotErr  error     // and why it has not
	emit    []byte    // checked bytes that the library has yet to read
	cur     *held     // the frame in emit when nobody else holds it
	out     []byte    // scratch for frames that are rewritten
	greeted bool      // HELLO has come
	inFrame bool      // the read deadline is that of a frame
	frameBy time.Time // that deadline
	idleSet time.Time // when the idle deadline was last set

	// A place belongs to the reader when its number is taken from free, and
	// then to the frame's handler until its ACK is written.
	places [maxInFlight]place
	free   chan uint8

	limit    int // negotiated max-frame-size; set before the first NOTIFY
	draining atomic.Bool
	drainEnd time.Time // set before draining

	mu  sync.Mutex
	why error // why the connection ends, nil if the peer just closed it

	writing  sync.Mutex
	ack      []byte    // scratch
	broken   bool      // a write failed half-way: nothing may follow it
	writeSet time.Time // when the write deadline was last set
}

func newConn(s *Server, sock net.Conn) *conn {
	c := &conn{
		sock:  sock,
		srv:   s,
		limit: minMaxFrame,
		free:  make(chan uint8, maxInFlight),
	}
	for i := range maxInFlight {
		c.free <- uint8(i)
	}
	c.look = c.readReady
	if s, ok := sock.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn() // without it, a buffer is kept
	}
	return c
}

// serve runs the library on the connection until it ends. It never panics.
func (c *conn) serve() {
	defer c.sock.Close()
	defer c.report()
	defer c.drop()
	defer func() {
		if p := recover(); p != nil {
			c.srv.panicked("connection", p, debug.Stack())
		}
	}()
	c.startFrame()
	worker.Handle(guard{c}, c.handle, c)
}

// report counts and logs why the connection ended, if there is something to say.
func (c *conn) report() {
	c.mu.Lock()
	why := c.why
	c.mu.Unlock()
	switch {
	case why == nil:
	case refusalOf(why) != nil:
		c.srv.stats.malformed.Add(1)
		c.srv.quiet.warn(c.srv.log(), "spoa: connection closed", "on", c.sock.LocalAddr(), "peer", c.sock.RemoteAddr(), "why", why)
	default:
		c.srv.log().Debug("spoa: connection ended", "on", c.sock.LocalAddr(), "peer", c.sock.RemoteAddr(), "why", why)
	}
}

// Errorf makes conn the library's logger. What the library has to say is almost
// always the guard's own refusal wrapped; only what is new is kept.
func (c *conn) Errorf(format string, args ...any) {
	c.fail(fmt.Errorf(format, args...))
}

// fail keeps the first reason why the connection ends.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.why == nil {
		c.why = err
	}
	c.mu.Unlock()
}

// drain makes the connection end as soon as it is quiet between two frames.
func (c *conn) drain() {
	c.drainEnd = time.Now().Add(drainFor)
	c.draining.Store(true)
	c.sock.SetReadDeadline(time.Now()) // wakes the reader
}

// guard is what the library sees of a conn: its own type, so that conn does not
// pretend to be a whole net.Conn anywhere else.
type guard struct{ *conn }

func (g guard) LocalAddr() net.Addr              { return g.sock.LocalAddr() }
func (g guard) RemoteAddr() net.Addr             { return g.sock.RemoteAddr() }
func (g guard) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (g guard) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (g guard) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// Read gives the library bytes of whole, checked frames.
func (g guard) Read(p []byte) (int, error) {
	if len(g.emit) == 0 {
		if err := g.next(); err != nil {
			if err != io.EOF {
				g.fail(err)
			}
			return 0, err
		}
	}
	n := copy(p, g.emit)
	g.emit = g.emit[n:]
	return n, nil
}

// Write sends one frame; the library never writes less.
func (g guard) Write(b []byte) (int, error) {
	switch frame.Type(b[prefixLen]) {
	case frame.TypeAgentAck:
		return len(b), g.writeAck(b)
	case frame.TypeAgentHello:
		return len(b), g.write(withoutAsync(b), g.srv.writeTimeout())
	}
	return len(b), g.write(b, g.srv.writeTimeout())
}

// Close is called by the library when all handlers have returned and their
// ACKs are written.
func (g guard) Close() error {
	g.mu.Lock()
	r := refusalOf(g.why)
	quiet := g.why == nil && g.draining.Load()
	g.mu.Unlock()
	if r != nil {
		g.farewell(r.code, r.text)
	} else if quiet && g.greeted {
		g.farewell(codeNormal, "agent stops")
		g.linger()
	}
	g.sock.Close() // its error is of no use: the socket may be closed already
	return nil
}
