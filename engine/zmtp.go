package engine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// zmtpPeer is one connection of ZeroMQ's transport protocol, version 3.0, as far
// as a SUB or a DEALER needs it: without security, messages of bounded size, and
// no memory taken anew for each. It is not safe for concurrent use.
type zmtpPeer struct {
	conn   net.Conn
	in     *bufio.Reader
	buf    []byte   // of the message that was read last
	ends   []int    // of its frames in buf
	frames [][]byte // the frames
	out    []byte
}

// Bounds of a message: a batch of events holds the tokens of some prompts.
const (
	zmtpMaxMessage = 64 << 20 // bytes
	zmtpMaxFrames  = 16
)

const (
	zmtpMore    = 1
	zmtpLong    = 2
	zmtpCommand = 4
)

var (
	errZMTP      = errors.New("does not speak ZMTP 3 without security")
	errZMTPLarge = errors.New("sends a message that is too large")
)

// newZMTPPeer greets the other side of conn as a socket of that kind, "SUB" or
// "DEALER". timeout bounds the greeting.
func newZMTPPeer(conn net.Conn, kind string, timeout time.Duration) (*zmtpPeer, error) {
	p := &zmtpPeer{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var greeting [64]byte
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	ready := []byte("\x05READY\x0bSocket-Type")
	ready = binary.BigEndian.AppendUint32(ready, uint32(len(kind)))
	ready = append(ready, kind...)
	out := append(greeting[:], zmtpCommand, byte(len(ready)))
	if _, err := conn.Write(append(out, ready...)); err != nil {
		return nil, err
	}
	var theirs [64]byte
	for n := 0; n < len(theirs); {
		k, err := p.in.Read(theirs[n:])
		if err != nil {
			return nil, err
		}
		n += k
	}
	if theirs[0] != 0xff || theirs[9]&1 != 1 || theirs[10] < 3 || string(theirs[12:17]) != "NULL\x00" {
		return nil, errZMTP
	}
	flags, body, err := p.frame(0)
	if err != nil {
		return nil, err
	}
	if flags&zmtpCommand == 0 || len(body) < 6 || string(body[:6]) != "\x05READY" {
		return nil, errZMTP
	}
	return p, conn.SetDeadline(time.Time{})
}

// frame reads one frame to the end of buf, which already holds n bytes.
func (p *zmtpPeer) frame(n int) (flags byte, body []byte, err error) {
	if flags, err = p.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	var head [8]byte
	width := 1
	if flags&zmtpLong != 0 {
		width = 8
	}
	for i := 8 - width; i < 8; i++ {
		if head[i], err = p.in.ReadByte(); err != nil {
			return 0, nil, err
		}
	}
	size := binary.BigEndian.Uint64(head[:])
	if size > zmtpMaxMessage || n+int(size) > zmtpMaxMessage {
		return 0, nil, errZMTPLarge
	}
	p.buf = p.buf[:n]
	for end := n + int(size); len(p.buf) < end; {
		// Room is made by what came, not by what was announced.
		if len(p.buf) == cap(p.buf) {
			p.buf = append(p.buf, make([]byte, max(4096, len(p.buf)))...)[:len(p.buf)]
		}
		room := p.buf[len(p.buf):min(end, cap(p.buf))]
		k, err := p.in.Read(room)
		if err != nil {
			return 0, nil, err
		}
		p.buf = p.buf[:len(p.buf)+k]
	}
	return flags, p.buf[n:], nil
}

// receive returns the frames of the next message, valid until the next call.
func (p *zmtpPeer) receive() ([][]byte, error) {
	p.buf, p.ends = p.buf[:0], p.ends[:0]
	for {
		n := len(p.buf)
		flags, body, err := p.frame(n)
		if err != nil {
			return nil, err
		}
		if flags&zmtpCommand != 0 {
			if err := p.command(body); err != nil {
				return nil, err
			}
			p.buf = p.buf[:n]
			continue
		}
		if len(p.ends) == zmtpMaxFrames {
			return nil, errZMTPLarge
		}
		p.ends = append(p.ends, len(p.buf))
		if flags&zmtpMore == 0 {
			break
		}
	}
	p.frames = p.frames[:0]
	start := 0
	for _, end := range p.ends {
		p.frames = append(p.frames, p.buf[start:end:end])
		start = end
	}
	return p.frames, nil
}

// command acts on a command between messages: a PING wants its context back.
func (p *zmtpPeer) command(body []byte) error {
	const ping = "\x04PING"
	if len(body) < len(ping)+2 || string(body[:len(ping)]) != ping {
		return nil
	}
	context := body[len(ping)+2:]
	if len(context) > 16 {
		return errZMTP
	}
	p.out = append(p.out[:0], zmtpCommand, byte(5+len(context)))
	p.out = append(append(p.out, "\x04PONG"...), context...)
	if err := p.conn.SetWriteDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	_, err := p.conn.Write(p.out)
	return err
}

// send sends a message of short frames.
func (p *zmtpPeer) send(frames ...[]byte) error {
	p.out = p.out[:0]
	for i, f := range frames {
		if len(f) > 255 {
			return fmt.Errorf("a frame of %d bytes", len(f))
		}
		flags := byte(zmtpMore)
		if i == len(frames)-1 {
			flags = 0
		}
		p.out = append(append(p.out, flags, byte(len(f))), f...)
	}
	_, err := p.conn.Write(p.out)
	return err
}

// subscribe asks a PUB for every topic.
func (p *zmtpPeer) subscribe() error { return p.send([]byte{1}) }
