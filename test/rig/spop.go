package rig

import (
	endian "encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
)

// spop is HAProxy's end of a connection to the agent, as SPOE.txt has it.
type spop struct{ c net.Conn }

func number(b []byte, v int) []byte {
	if v < 240 {
		return append(b, byte(v))
	}
	b = append(b, byte(v)|0xf0)
	for v = (v - 240) >> 4; v >= 128; v = (v - 128) >> 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

func text(b []byte, s string) []byte { return append(number(b, len(s)), s...) }

func pair(b []byte, key, value string) []byte { return text(append(text(b, key), 8), value) }

// Types of frames.
const (
	haproxyHello = 1
	notify       = 3
	agentHello   = 101
	ack          = 103
)

// Send writes a frame.
func (s spop) Send(kind byte, payload []byte) error {
	b := append([]byte{0, 0, 0, 0, kind, 0, 0, 0, 1}, 1, 1)
	if kind == haproxyHello {
		b[9], b[10] = 0, 0
	}
	b = append(b, payload...)
	endian.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err := s.c.Write(b)
	return err
}

// receive reads a frame of the type.
func (s spop) receive(kind byte) error {
	var head [5]byte
	if _, err := io.ReadFull(s.c, head[:]); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, s.c, int64(endian.BigEndian.Uint32(head[:]))-1); err != nil {
		return err
	}
	if head[4] != kind {
		return fmt.Errorf("a frame of type %d, want %d", head[4], kind)
	}
	return nil
}

// hello opens the conversation.
func (s spop) hello() error {
	hello := pair(nil, "supported-versions", "2.0")
	hello = number(append(text(hello, "max-frame-size"), 3), 131068)
	if err := s.Send(haproxyHello, pair(hello, "capabilities", "pipelining")); err != nil {
		return err
	}
	return s.receive(agentHello)
}

func (s spop) Answered() error { return s.receive(ack) }
func (s spop) Close()          { s.c.Close() }

// Ask connects to the agent as HAProxy does and asks for a decision.
func (h *HAProxy) Ask(id string, body []byte) (Question, error) {
	c, err := dialUnix(h.Spoe)
	if err != nil {
		return nil, err
	}
	s := spop{c}
	if err := s.hello(); err != nil {
		return s, err
	}
	m := append(text(nil, "pm-route"), 3)
	return s, s.Send(notify, pair(pair(pair(m, "rid", id), "path", ChatPath), "body", string(body)))
}

// Garbage sends what begins well, or not at all, as frames and as log lines.
func (h *HAProxy) Garbage(rounds int) {
	throwAt(h.T, "unix", h.Spoe, rounds, func(r *rand.Rand, noise []byte) []byte {
		frame := func(kind byte, more ...byte) []byte {
			return append([]byte{0, 0, byte(len(noise) >> 8), byte(len(noise)), kind, 0, 0, 0, 1}, more...)
		}
		switch r.IntN(4) {
		case 0: // the length of a frame that is far too long
			return []byte{0xff, 0xff, 0xff, 0xff}
		case 1:
			return frame(haproxyHello, 0, 0)
		case 2: // which asks before any hello
			return frame(notify, 1, 1)
		}
		return nil
	})
	throwAt(h.T, "tcp", h.Feed, rounds, func(r *rand.Rand, noise []byte) []byte {
		switch r.IntN(3) {
		case 0: // a line whose fields are noise
			return fmt.Appendf(nil, "%d PM1 ev=close rid=", len(noise)+len("PM1 ev=close rid="))
		case 1: // a line that never ends
			return []byte("99999999999999999999 PM1 ev=close")
		}
		return nil
	})
}
