// Package zmtp speaks ZMTP 3.0, the transport protocol of ZeroMQ, without security: enough
// for the publishers and subscribers of KV-cache events and for their replays, on
// connections that either side opened. Messages of a peer are bounded, and a peer that does
// not read is dropped.
package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Conn is a connection to one peer. One goroutine may receive while others send.
// Receiving reuses memory; sending holds a lock of its own while it writes.
type Conn struct {
	conn    net.Conn
	timeout time.Duration // of a write

	in     *bufio.Reader
	buf    []byte   // the frames of the last message, one after the other
	ends   []int    // where each of them ends in buf
	frames [][]byte // returned by Receive

	mu  sync.Mutex // held during a write; guards out
	out []byte
}

// Bounds of a message that is received. A batch of KV-cache events carries the
// tokens of a few prompts.
const (
	maxMessage = 64 << 20 // bytes
	maxFrames  = 16
)

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// The errors of peers.
var (
	ErrProtocol = errors.New("peer does not speak ZMTP 3 without security")
	ErrTooLarge = errors.New("peer sends a message that is too large")
)

// greetingSize is the length of a greeting in bytes.
const greetingSize = 64

// NewConn exchanges greetings over conn as a socket of that kind: "SUB", "PUB",
// "DEALER" or "ROUTER". timeout bounds the exchange, and later each write. On an
// error the caller still closes conn.
func NewConn(conn net.Conn, kind string, timeout time.Duration) (*Conn, error) {
	c := &Conn{conn: conn, timeout: timeout, in: bufio.NewReaderSize(conn, 64<<10)}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(appendGreeting(nil, kind)); err != nil {
		return nil, err
	}
	var theirs [greetingSize]byte
	if _, err := io.ReadFull(c.in, theirs[:]); err != nil {
		return nil, err
	}
	if theirs[0] != 0xff || theirs[9]&1 != 1 || theirs[10] < 3 || string(theirs[12:17]) != "NULL\x00" {
		return nil, ErrProtocol
	}
	flags, body, err := c.frame(0)
	if err != nil {
		return nil, err
	}
	if flags&flagCommand == 0 || len(body) < 6 || string(body[:6]) != "\x05READY" {
		return nil, ErrProtocol
	}
	return c, conn.SetDeadline(time.Time{})
}

// appendGreeting appends a greeting and the command READY.
func appendGreeting(b []byte, kind string) []byte {
	var greeting [greetingSize]byte
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	ready := []byte("\x05READY\x0bSocket-Type")
	ready = binary.BigEndian.AppendUint32(ready, uint32(len(kind)))
	ready = append(ready, kind...)
	b = append(b, greeting[:]...)
	return append(append(b, flagCommand, byte(len(ready))), ready...)
}

// Close closes the connection. A call of Receive or Send that waits fails.
func (c *Conn) Close() error { return c.conn.Close() }

// SetReadDeadline sets when Wait and Receive give up.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// Wait waits for the first byte of a message. It can be called again after the
// deadline has passed, which Receive cannot, as it may have read half a message.
func (c *Conn) Wait() error {
	_, err := c.in.Peek(1)
	return err
}

// frame reads one frame to the end of buf, which already holds n bytes.
func (c *Conn) frame(n int) (flags byte, body []byte, err error) {
	if flags, err = c.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	var head [8]byte
	width := 1
	if flags&flagLong != 0 {
		width = 8
	}
	for i := 8 - width; i < 8; i++ {
		if head[i], err = c.in.ReadByte(); err != nil {
			return 0, nil, err
		}
	}
	size := binary.BigEndian.Uint64(head[:])
	if size > maxMessage || n+int(size) > maxMessage {
		return 0, nil, ErrTooLarge
	}
	c.buf = c.buf[:n]
	for end := n + int(size); len(c.buf) < end; {
		// The buffer grows with the bytes that have arrived, not with the announced length.
		if len(c.buf) == cap(c.buf) {
			c.buf = append(c.buf, make([]byte, max(4096, len(c.buf)))...)[:len(c.buf)]
		}
		free := c.buf[len(c.buf):min(end, cap(c.buf))]
		k, err := c.in.Read(free)
		if err != nil {
			return 0, nil, err
		}
		c.buf = c.buf[:len(c.buf)+k]
	}
	return flags, c.buf[n:], nil
}

// Receive returns the frames of the next message, valid until the next call. It
// waits for them until the read deadline.
func (c *Conn) Receive() ([][]byte, error) {
	c.buf, c.ends = c.buf[:0], c.ends[:0]
	for {
		n := len(c.buf)
		flags, body, err := c.frame(n)
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := c.command(body); err != nil {
				return nil, err
			}
			c.buf = c.buf[:n]
			continue
		}
		if len(c.ends) == maxFrames {
			return nil, ErrTooLarge
		}
		c.ends = append(c.ends, len(c.buf))
		if flags&flagMore == 0 {
			break
		}
	}
	c.frames = c.frames[:0]
	start := 0
	for _, end := range c.ends {
		c.frames = append(c.frames, c.buf[start:end:end])
		start = end
	}
	return c.frames, nil
}

// command acts on a command between messages: PONG, with the same context, is
// the answer to PING.
func (c *Conn) command(body []byte) error {
	const ping = "\x04PING"
	if len(body) < len(ping)+2 || string(body[:len(ping)]) != ping {
		return nil
	}
	context := body[len(ping)+2:]
	if len(context) > 16 {
		return ErrProtocol
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out[:0], flagCommand, byte(5+len(context)))
	c.out = append(append(c.out, "\x04PONG"...), context...)
	return c.write(c.out)
}

// Send sends a message. It fails when the peer does not read for as long as the
// timeout; the connection is of no use then.
func (c *Conn) Send(frames ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = appendMessage(c.out[:0], frames)
	return c.write(c.out)
}

// write writes b. The caller holds the lock.
func (c *Conn) write(b []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}

// appendMessage appends a message as it is on the wire.
func appendMessage(b []byte, frames [][]byte) []byte {
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		if len(f) > 255 {
			b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(f)))
		} else {
			b = append(b, flags, byte(len(f)))
		}
		b = append(b, f...)
	}
	return b
}

// Subscribe asks a PUB for every topic.
func (c *Conn) Subscribe() error { return c.Send([]byte{1}) }
