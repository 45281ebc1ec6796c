package spoa

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/negasus/haproxy-spoe-go/frame"

	"pointsman/listen"
)

// next reads one frame and does what it asks for. It returns io.EOF when it was
// the last one.
func (c *conn) next() error {
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
	p, err := decodePairs(b[prefixLen:], h.size)
	if err != nil {
		return err
	}
	if h.kind == frame.TypeHaproxyHello {
		return c.hello(p)
	}
	if !c.greeted {
		return refuse(codeInvalid, "DISCONNECT before HELLO")
	}
	if err := c.sendDisconnect(codeNormal, "connection closed by server", c.srv.writeTimeout()); err != nil {
		return err
	}
	return io.EOF
}

// hello negotiates the size of frames and answers HELLO.
func (c *conn) hello(p pairs) error {
	switch {
	case c.greeted:
		return refuse(codeInvalid, "a second HELLO")
	case p.maxFrame < minMaxFrame:
		return refuse(codeInvalid, "HELLO with a max-frame-size of %d", p.maxFrame)
	}
	c.greeted = true
	c.limit = int(min(p.maxFrame, uint64(c.srv.maxFrame())))
	if err := c.sendHello(); err != nil {
		return err
	}
	if p.healthcheck {
		return io.EOF
	}
	return nil
}

// errHandedOver ends the reading on this goroutine: another one goes on.
var errHandedOver = errors.New("another goroutine reads the connection")

// notify runs the call of NOTIFY frame b once there is a free slot.
func (c *conn) notify(b []byte, h header) error {
	if !c.greeted {
		return refuse(codeInvalid, "NOTIFY before HELLO")
	}
	own := c.cur
	if own == nil { // b lies among other frames
		own = getBuffer(len(b))
		copy(own.bytes, b)
		b = own.bytes
	}
	c.cur = nil
	if err := own.decodeNotify(b, prefixLen+h.size); err != nil {
		own.free()
		return err
	}
	select {
	case c.slots <- struct{}{}:
	default: // all slots are in use
		c.flush()
		c.slots <- struct{}{} // waits for an ACK
	}
	k := calls.Get().(*call)
	k.conn, k.frame = c, own
	k.stream, k.id = h.stream, h.frame
	c.calls.Add(1)
	if !k.run() {
		return errHandedOver
	}
	return nil
}

// readFrame reads one frame, length prefix included, after checking its length.
// It is valid until the next call.
func (c *conn) readFrame() ([]byte, error) {
	if c.cur != nil {
		c.cur.free()
		c.cur = nil
	}
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
	if size <= inSize {
		for c.w-c.r < size {
			if err := c.fill(); err != nil {
				return nil, err
			}
		}
		c.r += size
		c.frameBy = time.Time{}
		b := c.in[c.r-size : c.r]
		if size >= copyBelow && c.r == c.w {
			// The frame has the buffer to itself: it takes it.
			c.cur, c.whole, c.in = c.whole, nil, nil
		}
		return b, nil
	}
	c.flush()
	c.cur = getBuffer(size)
	b := c.cur.bytes
	have := copy(b, c.in[c.r:c.w])
	c.r, c.w = 0, 0
	for have < size {
		n, err := c.readMore(b[have:])
		if err != nil {
			return nil, err
		}
		have += n
	}
	c.frameBy = time.Time{}
	return b, nil
}

// fill writes the ACKs that wait, and reads at least one byte into in.
func (c *conn) fill() error {
	c.flush()
	if c.r == c.w {
		c.releaseBuffer()
		n, err := c.readFirst()
		c.w = n
		return err
	}
	if c.r > 0 {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	n, err := c.readMore(c.in[c.w:])
	c.w += n
	return err
}

// buffer returns c's buffer, a new one if it has none. Between two frames a
// connection has none: there may be thousands whose answers are held.
func (c *conn) buffer() []byte {
	if c.in == nil {
		c.whole = getBuffer(inSize)
		c.in = c.whole.bytes
	}
	return c.in
}

// releaseBuffer returns c's buffer to its pool and discards what is left in it.
func (c *conn) releaseBuffer() {
	if c.whole != nil {
		c.whole.free()
	}
	c.in, c.whole, c.r, c.w = nil, nil, 0, 0
}

// readIdle is sock.Read into a buffer that is acquired when there is something to
// read.
func (c *conn) readIdle() (int, error) {
	if c.raw == nil {
		return c.sock.Read(c.buffer())
	}
	if err := c.raw.Read(c.ready); err != nil {
		return 0, err
	}
	return c.got, c.gotErr
}

// readReady is called when there may be something to read, and reports whether
// there was.
func (c *conn) readReady(fd uintptr) bool {
	n, err := listen.TryRead(fd, c.buffer())
	if errors.Is(err, syscall.EAGAIN) {
		c.releaseBuffer()
		return false
	}
	c.got, c.gotErr = n, err
	if n == 0 && err == nil {
		c.gotErr = io.EOF
	}
	return true
}

// readFirst waits for the first bytes of a frame. It returns io.EOF for a draining
// connection that is idle.
func (c *conn) readFirst() (int, error) {
	c.startIdle()
	for {
		draining := c.draining.Load()
		if draining {
			now := time.Now()
			if now.After(c.drainEnd) {
				return 0, io.EOF
			}
			c.sock.SetReadDeadline(now.Add(drainIdle))
		}
		n, err := c.readIdle()
		switch {
		case n > 0:
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case draining:
			// The deadline may have passed before the read began.
			if n := readNow(c.sock, c.buffer()); n > 0 {
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
		n, err := c.stream.Read(p)
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, io.EOF):
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

// startFrame sets the deadline of the frame that is being read, once.
func (c *conn) startFrame() {
	if c.frameBy.IsZero() {
		c.inFrame = true
		c.frameBy = time.Now().Add(frameTimeout)
		c.sock.SetReadDeadline(c.frameBy)
	}
}

// startIdle sets the deadline of the pause between two frames. There is no pause
// before HELLO. The deadline is moved only when necessary, because moving it costs
// more than reading the clock.
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

// readNow reads what the socket holds, without waiting and regardless of its
// deadline. It returns 0 if the socket holds nothing or has no descriptor.
func readNow(sock net.Conn, p []byte) (n int) {
	s, ok := sock.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), p) })
	return max(n, 0)
}
