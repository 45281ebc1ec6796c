package spoa

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// The client side of SPOP, written from SPOE.txt and not from the library, so
// that both would have to be wrong in the same way.

func putUvarint(b []byte, v uint64) []byte {
	if v < 240 {
		return append(b, byte(v))
	}
	b = append(b, byte(v)|0xf0)
	for v = (v - 240) >> 4; v >= 128; v = (v - 128) >> 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

func uvarint(b []byte) (uint64, []byte) {
	v, b := uint64(b[0]), b[1:]
	if v < 240 {
		return v, b
	}
	for shift := 4; ; shift += 7 {
		c := b[0]
		v, b = v+uint64(c)<<shift, b[1:]
		if c < 128 {
			return v, b
		}
	}
}

func putString(b []byte, s string) []byte { return append(putUvarint(b, uint64(len(s))), s...) }

// raw is put into a frame as it is.
type raw []byte

func putValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 0)
	case bool:
		if v {
			return append(b, 0x11)
		}
		return append(b, 0x01)
	case int32:
		return putUvarint(append(b, 2), uint64(v))
	case uint32:
		return putUvarint(append(b, 3), uint64(v))
	case int64:
		return putUvarint(append(b, 4), uint64(v))
	case uint64:
		return putUvarint(append(b, 5), v)
	case string:
		return putString(append(b, 8), v)
	case []byte:
		return putString(append(b, 9), string(v))
	case raw:
		return append(b, v...)
	}
	panic(fmt.Sprintf("no such value: %T", v))
}

func getValue(b []byte) (any, []byte) {
	kind := b[0]
	b = b[1:]
	switch kind & 0x0f {
	case 0:
		return nil, b
	case 1:
		return kind&0x10 != 0, b
	case 2, 3, 4, 5:
		v, b := uvarint(b)
		return int64(v), b
	case 8, 9:
		n, b := uvarint(b)
		return string(b[:n]), b[n:]
	}
	panic(fmt.Sprintf("no such type: %d", kind))
}

// frameOf returns a whole frame with its length.
func frameOf(kind byte, flags uint32, stream, id uint64, payload []byte) []byte {
	b := []byte{0, 0, 0, 0, kind}
	b = binary.BigEndian.AppendUint32(b, flags)
	b = putUvarint(putUvarint(b, stream), id)
	b = append(b, payload...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

type arg struct {
	key string
	v   any
}

func putPairs(args ...arg) (b []byte) {
	for _, a := range args {
		b = putValue(putString(b, a.key), a.v)
	}
	return b
}

func messageOf(name string, args ...arg) []byte {
	return append(append(putString(nil, name), byte(len(args))), putPairs(args...)...)
}

func helloOf(maxFrame int, more ...arg) []byte {
	return frameOf(1, 1, 0, 0, putPairs(append([]arg{
		{"supported-versions", "2.0"},
		{"max-frame-size", uint32(maxFrame)},
		{"capabilities", "pipelining,async"},
		{"engine-id", "e"},
	}, more...)...))
}

func notifyOf(stream, id uint64, messages ...[]byte) []byte {
	var p []byte
	for _, m := range messages {
		p = append(p, m...)
	}
	return frameOf(3, 1, stream, id, p)
}

var disconnectFrame = frameOf(2, 1, 0, 0, putPairs(arg{"status-code", uint32(0)}, arg{"message", "bye"}))

// answer is one frame from the agent.
type answer struct {
	kind       byte
	stream, id uint64
	size       int
	vars       map[string]any // of an ACK, or the pairs of the other frames
}

type client struct {
	net.Conn
	r *bufio.Reader
}

func (c *client) read() (a answer, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return a, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c.r, b); err != nil {
		return a, err
	}
	a.kind, a.size, a.vars = b[0], len(b), map[string]any{}
	a.stream, b = uvarint(b[5:])
	a.id, b = uvarint(b)
	for len(b) > 0 {
		if a.kind == 103 {
			if b[0] != 1 || b[1] != 3 || b[2] != 2 {
				return a, fmt.Errorf("not set-var in scope txn: %v", b[:3])
			}
			b = b[3:]
		}
		n, rest := uvarint(b)
		key := string(rest[:n])
		a.vars[key], b = getValue(rest[n:])
	}
	return a, nil
}

// greet says HELLO.
func (c *client) greet(maxFrame int) (answer, error) {
	if _, err := c.Write(helloOf(maxFrame)); err != nil {
		return answer{}, err
	}
	a, err := c.read()
	if err == nil && a.kind != 101 {
		err = fmt.Errorf("answer of type %d to HELLO", a.kind)
	}
	return a, err
}

// ask sends one message and waits for its ACK.
func (c *client) ask(stream uint64, m []byte) (answer, error) {
	if _, err := c.Write(notifyOf(stream, 1, m)); err != nil {
		return answer{}, err
	}
	a, err := c.read()
	if err == nil && (a.kind != 103 || a.stream != stream || a.id != 1) {
		err = fmt.Errorf("stream %d: got frame %+v", stream, a)
	}
	return a, err
}

// rig is a running server on a unix or TCP socket.
type rig struct {
	*Server
	addr   net.Addr
	served chan error
}

func start(t testing.TB, network string, s *Server) *rig {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	r := &rig{s, l.Addr(), make(chan error, 1)}
	go func() { r.served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-r.served; !errors.Is(err, ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return r
}

// dial connects; every read and write of the client ends within 20 s.
func (r *rig) dial(t testing.TB) *client {
	t.Helper()
	c, err := net.Dial(r.addr.Network(), r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return &client{c, bufio.NewReader(c)}
}

func (r *rig) connect(t testing.TB, maxFrame int) *client {
	t.Helper()
	c := r.dial(t)
	if _, err := c.greet(maxFrame); err != nil {
		t.Fatal(err)
	}
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls until ok holds. It ends the test when that takes too long, so
// only the goroutine of the test may call it.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !holds(ok) {
		t.Fatalf("not within 10 s: %s", what)
	}
}

// holds polls until ok holds, and reports whether it did within 10 s.
func holds(ok func() bool) bool {
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
