package spoa

import (
	"net"
	"time"

	"github.com/negasus/haproxy-spoe-go/frame"
)

// batchLimit is how many bytes of ACKs may wait for the next ones.
const batchLimit = 16 << 10

// ack answers the NOTIFY frame of k. Where more frames follow, the ACK waits for
// theirs, until the reading goroutine calls flush.
func (c *conn) ack(k *call, moreFollow bool) error {
	f := frame.AcquireFrame()
	f.Type, f.StreamID, f.FrameID, f.Actions = frame.TypeAgentAck, k.stream, k.id, k.actions
	c.writing.Lock()
	defer c.writing.Unlock()
	before := len(c.acks)
	_, err := f.Encode(&c.acks)
	frame.ReleaseFrame(f)
	if err != nil {
		c.acks = c.acks[:before]
		return err
	}
	if moreFollow && len(c.acks) < batchLimit {
		return nil
	}
	return c.flushLocked()
}

// flush writes the ACKs that wait. The reading goroutine calls it before it waits
// for anything.
func (c *conn) flush() {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.flushLocked(); err != nil {
		c.fail(err)
	}
}

func (c *conn) flushLocked() error {
	if len(c.acks) == 0 {
		return nil
	}
	b := c.acks
	c.acks = b[:0]
	return c.writeLocked(b, c.srv.writeTimeout())
}

// sendHello accepts the connection. It does not announce the capability "async": our
// ACKs use the connection of their message anyway, and with "async" HAProxy 2.6 lets
// the messages of a connection that ends wait for the whole `timeout processing`
// instead of failing them.
func (c *conn) sendHello() error {
	f := frame.AcquireFrame()
	defer frame.ReleaseFrame(f)
	f.Type = frame.TypeAgentHello
	f.KV.Add("version", "2.0")
	f.KV.Add("max-frame-size", uint32(c.limit))
	f.KV.Add("capabilities", "pipelining")
	return c.send(f, c.srv.writeTimeout())
}

// sendDisconnect sends an AGENT-DISCONNECT.
func (c *conn) sendDisconnect(code uint32, text string, timeout time.Duration) error {
	f := frame.AcquireFrame()
	defer frame.ReleaseFrame(f)
	f.Type = frame.TypeAgentDisconnect
	f.KV.Add("status-code", code)
	f.KV.Add("message", text)
	return c.send(f, timeout)
}

func (c *conn) send(f *frame.Frame, timeout time.Duration) error {
	var b bytesWriter
	if _, err := f.Encode(&b); err != nil {
		return err
	}
	return c.write(b, timeout)
}

func (c *conn) write(b []byte, timeout time.Duration) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.flushLocked(); err != nil {
		return err
	}
	return c.writeLocked(b, timeout)
}

func (c *conn) writeLocked(b []byte, timeout time.Duration) error {
	if c.broken {
		return net.ErrClosed
	}
	// Setting a deadline costs more than reading the clock, so it is moved only
	// when a quarter of it has passed.
	if now := time.Now(); now.Sub(c.writeSet) > timeout/4 {
		c.writeSet = now
		c.sock.SetWriteDeadline(now.Add(timeout))
	}
	_, err := c.stream.Write(b)
	if err != nil {
		c.broken = true
		c.fail(err)
		c.sock.Close() // ends the reader too
	}
	return err
}

// farewell sends the last frame.
func (c *conn) farewell(code uint32, text string) {
	c.writing.Lock()
	c.writeSet = time.Time{}
	c.writing.Unlock()
	_ = c.sendDisconnect(code, text, farewellLimit) // the connection is closed next in any case
}

// linger waits until the peer has closed. Closing earlier would reset a TCP
// connection whose last ACKs are still in flight.
func (c *conn) linger() {
	half, ok := c.sock.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.sock.SetReadDeadline(time.Now().Add(lingerFor))
	for {
		if _, err := c.sock.Read(c.buffer()); err != nil {
			return
		}
	}
}

// bytesWriter is an io.Writer that appends to a slice.
type bytesWriter []byte

func (b *bytesWriter) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}
