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

	// maxInFlight bounds the frames of one connection whose ACK is outstanding.
	// HAProxy sends at most max-waiting-frames, 20 unless configured, and opens
	// further connections beyond that: almost one for each frame that is held.
	maxInFlight = 32

	frameTimeout  = 5 * time.Second        // for a whole frame from its first byte, and for HELLO
	drainIdle     = 10 * time.Millisecond  // a draining connection is done when nothing arrives for this long
	drainFor      = time.Second            // how long a draining connection may go on sending frames
	lingerFor     = 200 * time.Millisecond // for the peer to close after the last frame
	farewellLimit = 100 * time.Millisecond // for writing the last DISCONNECT
)

// conn is a connection. One goroutine at a time reads from it and runs the Handler;
// when the Handler waits, another goroutine takes over the reading (Message.Block).
// Many write to it.
type conn struct {
	sock   net.Conn // as the operating system has it
	stream net.Conn // as it was accepted; Close ends its count in Server.accepted
	srv    *Server
	peer   int // pid of the other end, 0 = unknown

	// Used by the goroutine that reads only.
	in      []byte  // in[r:w] was read from the socket and is not used yet; nil between frames
	whole   *buffer // the memory of in
	r, w    int
	raw     syscall.RawConn       // of sock, nil if it has none
	ready   func(fd uintptr) bool // readReady
	got     int                   // the number of bytes that readReady has read,
	gotErr  error                 // and its error
	cur     *buffer               // the memory of the last frame if that frame has it to itself
	greeted bool                  // HELLO was received
	inFrame bool                  // the read deadline belongs to a frame
	frameBy time.Time             // deadline of the frame that is being read, zero between frames
	idleSet time.Time             // when the idle deadline was last set

	slots chan struct{} // holds one token for each NOTIFY frame whose ACK is not written yet
	calls sync.WaitGroup

	limit    int // negotiated max-frame-size; set before the first NOTIFY
	draining atomic.Bool
	drainEnd time.Time // set before draining

	mu  sync.Mutex
	why error // why the connection ends, nil if the peer closed it

	writing  sync.Mutex
	acks     bytesWriter // not written yet
	broken   bool        // a write failed: nothing may follow
	writeSet time.Time   // when the write deadline was last set
}

func newConn(s *Server, sock net.Conn) *conn {
	c := &conn{sock: sock, stream: sock, srv: s, limit: minMaxFrame, slots: make(chan struct{}, maxInFlight)}
	if counted, ok := sock.(*listen.Conn); ok {
		c.sock = counted.Conn
	}
	c.peer = peer(c.sock)
	c.ready = c.readReady
	if s, ok := c.sock.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn() // without it, a buffer is kept
	}
	return c
}

// serve reads the connection until it ends, and finishes it, or until another
// goroutine reads on. It never panics.
func (c *conn) serve() {
	if !c.serveFrames() {
		return
	}
	defer c.srv.dropConn(c)
	defer c.stream.Close()
	defer c.releaseBuffer()
	defer c.recover()
	c.finish()
}

// handOver has another goroutine read on.
func (c *conn) handOver() {
	c.flush()
	go c.serve()
}

// recover counts and logs a panic of the goroutine that serves the connection.
func (c *conn) recover() {
	if p := recover(); p != nil {
		c.srv.panicked("connection", p, debug.Stack())
	}
}

// serveFrames reads frames until the connection ends, or one of them ends it. It
// reports false when another goroutine reads on.
func (c *conn) serveFrames() (over bool) {
	over = true // after a panic, too
	defer c.recover()
	if !c.greeted {
		c.startFrame()
	}
	for {
		switch err := c.next(); {
		case err == nil:
		case errors.Is(err, errHandedOver):
			return false
		default:
			if !errors.Is(err, io.EOF) {
				c.fail(err)
			}
			return true
		}
	}
}

// report counts and logs the reason if the connection did not end normally.
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

// fail records why the connection ends. The first reason counts.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.why == nil {
		c.why = err
	}
	c.mu.Unlock()
}

// drain makes the connection end as soon as it is idle between two frames.
func (c *conn) drain() {
	c.drainEnd = time.Now().Add(drainFor)
	c.draining.Store(true)
	c.sock.SetReadDeadline(time.Now()) // wakes the reader
}

// finish ends the connection after all ACKs are written. Everything is counted
// before the peer can see the end.
func (c *conn) finish() {
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
	c.stream.Close() // its error is of no use: the socket may be closed already
}
