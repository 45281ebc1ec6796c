package spoa

import (
	"net"
	"time"

	"github.com/negasus/haproxy-spoe-go/frame"
)

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
		if _, err := c.sock.Read(c.need()); err != nil {
			return
		}
	}
}

// bytesWriter is the smallest io.Writer that keeps what it gets.
type bytesWriter []byte

func (b *bytesWriter) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}
