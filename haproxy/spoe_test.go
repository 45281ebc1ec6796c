package haproxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"pointsman/spoa"
)

// proxy is the side of HAProxy: one connection that sends one message at a time.
// Its frames are short enough for lengths of one or two bytes.
type proxy struct {
	t *testing.T
	c net.Conn
}

// asked serves h on a unix socket and returns a proxy that has said HELLO.
func asked(t *testing.T, h spoa.Handler) *proxy {
	t.Helper()
	s := &spoa.Server{Handler: h, Log: slog.New(slog.DiscardHandler)}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	p := &proxy{t: t, c: dial(t, l.Addr())}
	t.Cleanup(func() {
		p.c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		<-served
	})
	p.send(1, 0, append(str("max-frame-size"), 3, 0xfc, 0xf0, 0x06)) // 16380
	p.read()
	return p
}

func dial(t *testing.T, a net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial(a.Network(), a.String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// str is a string with its length.
func str(s string) []byte {
	if len(s) < 240 {
		return append([]byte{byte(len(s))}, s...)
	}
	return append([]byte{byte(len(s)) | 0xf0, byte((len(s) - 240) >> 4)}, s...) // up to 2,287
}

func (p *proxy) send(kind, stream byte, payload []byte) {
	p.t.Helper()
	b := binary.BigEndian.AppendUint32(nil, uint32(7+len(payload)))
	b = append(append(b, kind, 0, 0, 0, 1, stream, 1), payload...)
	if _, err := p.c.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

func (p *proxy) read() []byte {
	p.t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(p.c, head[:]); err != nil {
		p.t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(p.c, b); err != nil {
		p.t.Fatal(err)
	}
	return b
}

// ask sends a message of string arguments, names and values in turn.
func (p *proxy) ask(stream byte, args ...string) {
	p.t.Helper()
	b := append(str("pm-route"), byte(len(args)/2))
	for i := 0; i < len(args); i += 2 {
		b = append(append(append(b, str(args[i])...), 8), str(args[i+1])...)
	}
	p.send(3, stream, b)
}

// answer reads an ACK: its stream and variables, strings and integers as text.
func (p *proxy) answer() (stream byte, vars map[string]string) {
	p.t.Helper()
	b := p.read()
	if b[0] != 103 {
		p.t.Fatalf("a frame of type %d", b[0])
	}
	stream, b = b[5], b[7:]
	vars = map[string]string{}
	number := func() (n int) {
		n, b = int(b[0]), b[1:]
		if n >= 240 {
			for shift := 4; ; shift += 7 {
				c := b[0]
				n, b = n+int(c)<<shift, b[1:]
				if c < 128 {
					break
				}
			}
		}
		return n
	}
	text := func() (s string) {
		n := number()
		s, b = string(b[:n]), b[n:]
		return s
	}
	for len(b) > 0 {
		b = b[3:] // set-var, two arguments, scope
		name, kind := text(), byte(0)
		kind, b = b[0], b[1:]
		if kind == 8 {
			vars[name] = text()
		} else {
			vars[name] = fmt.Sprint(number())
		}
	}
	return stream, vars
}
