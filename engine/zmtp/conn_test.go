package zmtp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zeromq/zmq4"
)

// serve accepts one connection, serves it by f, and returns the other end.
func serve(t testing.TB, f func(c net.Conn)) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			f(c)
			c.Close()
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); l.Close(); <-done })
	return conn
}

// greeting returns the greeting and READY of a PUB socket.
func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	return append(g, "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"...)
}

func TestSubscribesToALibrary(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pub := zmq4.NewPub(ctx)
	defer pub.Close()
	if err := pub.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", pub.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := NewConn(conn, "SUB", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if err := peer.Subscribe(); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), 300_000)
	sent := make(chan struct{})
	go func() { // until the subscription takes effect
		for {
			select {
			case <-sent:
				return
			case <-time.After(5 * time.Millisecond):
				_ = pub.SendMulti(zmq4.NewMsgFrom([]byte("t"), nil, []byte("12345678"), large))
			}
		}
	}()
	defer close(sent)
	for range 3 {
		f, err := peer.Receive()
		if err != nil || len(f) != 4 || string(f[0]) != "t" || len(f[1]) != 0 || string(f[2]) != "12345678" || !bytes.Equal(f[3], large) {
			t.Fatalf("%d frames, %v", len(f), err)
		}
	}
}

func TestAnswersPings(t *testing.T) {
	pong := make(chan []byte, 1)
	conn := serve(t, func(c net.Conn) {
		c.Write(append(greeting(), "\x04\x09\x04PING\x00\x64ab\x00\x02hi"...))
		in := make([]byte, 64+27+9) // greeting, READY and PONG
		n, _ := io.ReadFull(c, in)
		pong <- in[:n]
	})
	peer, err := NewConn(conn, "SUB", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	f, err := peer.Receive()
	if err != nil || len(f) != 1 || string(f[0]) != "hi" {
		t.Fatalf("%q %v", f, err)
	}
	if got := <-pong; !bytes.HasSuffix(got, []byte("\x04\x07\x04PONGab")) {
		t.Errorf("%q", got)
	}
}

// A peer that sends PING but does not read PONG fails a write.
func TestDropsAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		go func() {
			io.ReadFull(theirs, make([]byte, 64+27))
			theirs.Write(append(greeting(), "\x04\x09\x04PING\x00\x64ab"...))
		}()
		peer, err := NewConn(ours, "SUB", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := peer.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q %v", f, err)
		}
	})
}

func TestRefusesHostilePeers(t *testing.T) {
	for what, sends := range map[string][]byte{
		"HTTP":             []byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nServer: something long enough for a greeting\r\n\r\n"),
		"an old version":   append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 1}, make([]byte, 60)...),
		"security":         bytes.Replace(greeting(), []byte("NULL\x00"), []byte("CURVE"), 1),
		"no READY":         append(greeting()[:64], "\x00\x02hi"...),
		"silence":          nil,
		"a greeting alone": greeting()[:64],
	} {
		conn := serve(t, func(c net.Conn) { c.Write(sends); io.Copy(io.Discard, c) })
		if _, err := NewConn(conn, "SUB", 50*time.Millisecond); err == nil {
			t.Errorf("%s is accepted as a greeting", what)
		}
	}
	conn := serve(t, func(c net.Conn) { c.Write(append(greeting(), "\x02\xff\xff\xff\xff\xff\xff\xff\xff"...)) })
	peer, err := NewConn(conn, "SUB", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Receive(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an endless message: %v", err)
	}
}

// scripted is a connection to a peer that sends what is in in.
type scripted struct {
	net.Conn
	in io.Reader
}

func (s *scripted) Read(b []byte) (int, error)       { return s.in.Read(b) }
func (s *scripted) Write(b []byte) (int, error)      { return len(b), nil }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }

func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x00\x02hi"))
	f.Add([]byte("\x01\x01t\x01\x0812345678\x02\x00\x00\x00\x00\x00\x00\x00\x03abc"))
	f.Add([]byte("\x04\x09\x04PING\x00\x64ab\x00\x02hi"))
	f.Add(bytes.Repeat([]byte{1, 0}, 40))
	f.Fuzz(func(t *testing.T, sent []byte) {
		peer, err := NewConn(&scripted{in: io.MultiReader(bytes.NewReader(greeting()), bytes.NewReader(sent))}, "SUB", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for range len(sent) + 1 {
			frames, err := peer.Receive()
			if err != nil {
				if cap(peer.buf) > 64<<10+8*len(sent) {
					t.Fatal(fmt.Sprint(cap(peer.buf), " bytes for ", len(sent)))
				}
				return
			}
			if len(frames) == 0 || len(frames) > maxFrames {
				t.Fatalf("%d frames", len(frames))
			}
		}
		t.Fatal("more messages than bytes")
	})
}
