package spoa

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/negasus/haproxy-spoe-go/frame"
	"github.com/negasus/haproxy-spoe-go/request"
	"github.com/negasus/haproxy-spoe-go/worker"
)

const (
	inSize = 8 << 10 // bytes a connection reads at once; larger frames get a buffer of their own

	outKeep = 64 << 10 // bytes of scratch a connection keeps between frames

	// maxInFlight bounds the frames of one connection that wait for their
	// handler. HAProxy sends at most max-waiting-frames, 20 unless configured.
	// A place's number must fit into one byte of SPOP's varint.
	maxInFlight = 240

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
	in      []byte    // in[r:w] is read from the socket and not yet used
	r, w    int       //
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
		in:    make([]byte, inSize),
		limit: minMaxFrame,
		free:  make(chan uint8, maxInFlight),
	}
	for i := range maxInFlight {
		c.free <- uint8(i)
	}
	return c
}

// serve runs the library on the connection until it ends. It never panics.
func (c *conn) serve() {
	defer c.sock.Close()
	defer c.report()
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

// writeAck sends an ACK under its true stream identifier and frees its place.
func (c *conn) writeAck(b []byte) error {
	n := b[streamAt]
	p := &c.places[n]
	c.writing.Lock()
	c.ack = setStream(c.ack[:0], b, p.stream)
	err := c.writeLocked(c.ack, c.srv.writeTimeout())
	c.writing.Unlock()
	if p.held != nil {
		p.held.free()
	}
	*p = place{}
	c.free <- n
	return err
}

func (c *conn) write(b []byte, timeout time.Duration) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.writeLocked(b, timeout)
}

func (c *conn) writeLocked(b []byte, timeout time.Duration) error {
	if c.broken {
		return net.ErrClosed
	}
	// A deadline costs more than the clock: it is moved only when a quarter of
	// it has passed.
	if now := time.Now(); now.Sub(c.writeSet) > timeout/4 {
		c.writeSet = now
		c.sock.SetWriteDeadline(now.Add(timeout))
	}
	_, err := c.sock.Write(b)
	if err != nil {
		c.broken = true
		c.fail(err)
		c.sock.Close() // ends the reader too
	}
	return err
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

// farewell sends an AGENT-DISCONNECT.
func (c *conn) farewell(code uint32, text string) {
	f := frame.AcquireFrame()
	defer frame.ReleaseFrame(f)
	f.Type = frame.TypeAgentDisconnect
	f.KV.Add("status-code", code)
	f.KV.Add("message", text)
	var b bytesWriter
	if _, err := f.Encode(&b); err == nil {
		c.writing.Lock()
		c.writeSet = time.Time{}
		c.writing.Unlock()
		c.write(b, farewellLimit)
	}
}

// linger waits until the peer has closed, so that closing does not reset a TCP
// connection whose last ACKs are still under way.
func (c *conn) linger() {
	half, ok := c.sock.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.sock.SetReadDeadline(time.Now().Add(lingerFor))
	for {
		if _, err := c.sock.Read(c.in); err != nil {
			return
		}
	}
}

// next reads and checks one frame and makes it the one to emit.
func (c *conn) next() error {
	if c.cur != nil {
		c.cur.free()
		c.cur = nil
	}
	if cap(c.out) > outKeep {
		c.out = nil
	}
	b, err := c.readFrame()
	if err != nil {
		return err
	}
	c.srv.stats.frames.Add(1)
	h, err := readHeader(b[prefixLen:])
	if err != nil {
		return err
	}
	if h.kind == frame.TypeNotify {
		return c.notify(b, h)
	}
	args, err := checkPairs(b[prefixLen:], h.size)
	if err != nil {
		return err
	}
	c.emit = b
	if h.kind == frame.TypeHaproxyDisconnect {
		if !c.greeted {
			return refuse(codeInvalid, "DISCONNECT before HELLO")
		}
		return nil
	}
	switch {
	case c.greeted:
		return refuse(codeInvalid, "a second HELLO")
	case args.maxFrame < minMaxFrame:
		return refuse(codeInvalid, "HELLO with a max-frame-size of %d", args.maxFrame)
	}
	c.greeted = true
	c.limit = c.srv.maxFrame()
	if args.maxFrame <= uint64(c.limit) {
		c.limit = int(args.maxFrame)
		return nil
	}
	c.out = lowerMaxFrame(c.out[:0], b, args, c.limit)
	c.emit = c.out
	return nil
}

// notify makes NOTIFY frame b the one to emit, once there is a place for it.
func (c *conn) notify(b []byte, h header) error {
	if !c.greeted {
		return refuse(codeInvalid, "NOTIFY before HELLO")
	}
	if err := checkNotify(b[prefixLen:], h.size, c.cur); err != nil {
		return err
	}
	n := <-c.free // waits for an ACK if all places are taken
	p := &c.places[n]
	p.stream = h.stream
	if c.cur != nil && len(c.cur.values) > 0 {
		p.held, c.cur = c.cur, nil
		c.out = cutOut(c.out[:0], b, p.held.values)
		b = c.out
	}
	c.emit = setPlace(b, h, n)
	return nil
}

// readFrame reads one frame, length prefix included, after checking its length.
// It is valid until the next call.
func (c *conn) readFrame() ([]byte, error) {
	for c.w-c.r < prefixLen {
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
	n := binary.BigEndian.Uint32(c.in[c.r:])
	most := c.limit
	if !c.greeted {
		most = maxHello
	}
	if n < minFrame {
		return nil, refuse(codeInvalid, "frame length %d is too small", n)
	}
	if uint64(n) > uint64(most) {
		return nil, refuse(codeTooBig, "frame length %d is above %d", n, most)
	}
	size := prefixLen + int(n)
	if size <= len(c.in) {
		for c.w-c.r < size {
			if err := c.fill(); err != nil {
				return nil, err
			}
		}
		c.r += size
		return c.in[c.r-size : c.r], nil
	}
	c.cur = getHeld(size)
	b := c.cur.buf
	have := copy(b, c.in[c.r:c.w])
	c.r, c.w = 0, 0
	for have < size {
		n, err := c.readMore(b[have:])
		if err != nil {
			return nil, err
		}
		have += n
	}
	return b, nil
}

// fill reads at least one byte into in.
func (c *conn) fill() error {
	read := c.readMore
	if c.r == c.w {
		c.r, c.w = 0, 0
		read = c.readFirst
	} else if c.r > 0 {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	n, err := read(c.in[c.w:])
	c.w += n
	return err
}

// readFirst waits for the first bytes of a frame. A draining connection that is
// quiet ends here with io.EOF.
func (c *conn) readFirst(p []byte) (int, error) {
	c.startIdle()
	for {
		draining := c.draining.Load()
		if draining {
			now := time.Now()
			if now.After(c.drainEnd) {
				return 0, io.EOF
			}
			c.sock.SetReadDeadline(now.Add(drainQuiet))
		}
		n, err := c.sock.Read(p)
		switch {
		case n > 0:
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case draining:
			// The deadline may have passed before the read even looked.
			if n := readNow(c.sock, p); n > 0 {
				return n, nil
			}
			return 0, io.EOF
		case c.draining.Load():
		case !c.greeted:
			return 0, refuse(codeTimeout, "no HELLO within %v", frameTimeout)
		default:
			return 0, fmt.Errorf("idle for %v", c.srv.idleTimeout())
		}
	}
}

// readMore reads further bytes of a frame that has begun.
func (c *conn) readMore(p []byte) (int, error) {
	c.startFrame()
	for {
		n, err := c.sock.Read(p)
		switch {
		case n > 0:
			return n, nil
		case err == io.EOF:
			return 0, refuse(codeInvalid, "connection ended inside a frame")
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case time.Now().Before(c.frameBy): // woken by drain
			c.sock.SetReadDeadline(c.frameBy)
		default:
			return 0, refuse(codeTimeout, "frame not complete within %v", frameTimeout)
		}
	}
}

// startFrame gives the frame that is being read its time, once.
func (c *conn) startFrame() {
	if !c.inFrame {
		c.inFrame = true
		c.frameBy = time.Now().Add(frameTimeout)
		c.sock.SetReadDeadline(c.frameBy)
	}
}

// startIdle gives the pause between two frames its time. Until HELLO there is
// no pause. The deadline is moved only when it has to be: it costs more than
// the clock.
func (c *conn) startIdle() {
	if !c.greeted {
		return
	}
	now, d := time.Now(), c.srv.idleTimeout()
	if c.inFrame || now.Sub(c.idleSet) > d/16 {
		c.inFrame = false
		c.idleSet = now
		c.sock.SetReadDeadline(now.Add(d))
	}
}

// readNow reads what the socket holds without waiting and whatever its
// deadline; 0 if it holds nothing or has no descriptor.
func readNow(sock net.Conn, p []byte) (n int) {
	s, ok := sock.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), p) })
	return max(n, 0)
}

// bytesWriter is the smallest io.Writer that keeps what it gets.
type bytesWriter []byte

func (b *bytesWriter) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// call is what one run of the handler needs, pooled.
type call struct {
	m Message
	w Reply
}

var calls = sync.Pool{New: func() any { return new(call) }}

// handle is called by the library for every NOTIFY frame, on a goroutine of
// that frame. The frame's messages share one reply.
func (c *conn) handle(req *request.Request) {
	h := c.places[req.StreamID].held
	k := calls.Get().(*call)
	k.w = Reply{actions: &req.Actions, room: c.limit - ackOverhead}
	defer func() {
		if p := recover(); p != nil {
			req.Actions.Reset()
			c.srv.panicked("handler", p, debug.Stack())
		}
		if k.w.dropped > 0 {
			c.srv.stats.dropped.Add(k.w.dropped)
		}
		*k = call{}
		calls.Put(k)
	}()
	for i, msg := range *req.Messages {
		c.srv.stats.messages.Add(1)
		k.m = Message{msg: msg, index: i, held: h}
		c.srv.Handler(&k.m, &k.w)
	}
}
