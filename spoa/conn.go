package spoa

import (
	"errors"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pointsman/listen"
)

const (
	inSize = 8 << 10 // bytes a connection reads at once; larger frames get a buffer of their own

	copyBelow = 2 << 10 // bytes of a frame that is copied rather than given the whole of inSize

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

// conn is a connection: one goroutine reads from it, many write to it.
type conn struct {
	sock   net.Conn  // as the operating system has it
	closer io.Closer // ends sock and its count in Server.accepted
	srv    *Server

	// Of the reading goroutine alone.
	in      []byte  // in[r:w] is read from the socket and not yet used; nil while none is
	whole   *buffer // the memory of in
	r, w    int
	raw     syscall.RawConn       // of sock, nil if it has none
	ready   func(fd uintptr) bool // readReady
	got     int                   // what readReady has read,
	gotErr  error                 // and why it has not
	cur     *buffer               // the memory of the last frame when it has that to itself
	greeted bool                  // HELLO has come
	inFrame bool                  // the read deadline is that of a frame
	frameBy time.Time             // until when the frame that is being read has time, if it has begun
	idleSet time.Time             // when the idle deadline was last set

	places chan struct{} // one for each NOTIFY frame whose ACK is not written yet
	calls  sync.WaitGroup

	limit    int // negotiated max-frame-size; set before the first NOTIFY
	draining atomic.Bool
	drainEnd time.Time // set before draining

	mu  sync.Mutex
	why error // why the connection ends, nil if the peer just closed it

	writing  sync.Mutex
	scratch  bytesWriter
	broken   bool      // a write failed half-way: nothing may follow it
	writeSet time.Time // when the write deadline was last set
}

func newConn(s *Server, sock net.Conn) *conn {
	c := &conn{sock: sock, closer: sock, srv: s, limit: minMaxFrame, places: make(chan struct{}, maxInFlight)}
	if counted, ok := sock.(*listen.Conn); ok {
		c.sock = counted.Conn
	}
	c.ready = c.readReady
	if s, ok := c.sock.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn() // without it, a buffer is kept
	}
	return c
}

// serve runs the connection until it ends. It never panics.
func (c *conn) serve() {
	defer c.closer.Close()
	defer c.drop()
	defer c.recover()
	c.serveFrames()
	c.leave()
}

// recover counts and logs a panic of the goroutine that serves the connection.
func (c *conn) recover() {
	if p := recover(); p != nil {
		c.srv.panicked("connection", p, debug.Stack())
	}
}

// serveFrames reads frames until the connection ends or one of them ends it.
func (c *conn) serveFrames() {
	defer c.recover()
	c.startFrame()
	for {
		if err := c.next(); err != nil {
			if !errors.Is(err, io.EOF) {
				c.fail(err)
			}
			return
		}
	}
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
		c.srv.peers.Warn(c.srv.log(), "spoa: connection closed", "on", c.sock.LocalAddr(), "peer", c.sock.RemoteAddr(), "why", why)
	default:
		c.srv.log().Debug("spoa: connection ended", "on", c.sock.LocalAddr(), "peer", c.sock.RemoteAddr(), "why", why)
	}
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

// leave ends the connection when all ACKs are written. Everything is counted
// before the peer can see the end.
func (c *conn) leave() {
	c.calls.Wait()
	c.report()
	c.mu.Lock()
	r := refusalOf(c.why)
	quiet := c.why == nil && c.draining.Load()
	c.mu.Unlock()
	if r != nil {
		c.farewell(r.code, r.text)
	} else if quiet && c.greeted {
		c.farewell(codeNormal, "agent stops")
		c.linger()
	}
	c.closer.Close() // its error is of no use: the socket may be closed already
}
