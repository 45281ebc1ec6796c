package listen

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// anAddress is an address to listen on.
func anAddress(t *testing.T, network string) string {
	if strings.HasPrefix(network, "unix") {
		return filepath.Join(t.TempDir(), "s")
	}
	return "127.0.0.1:0"
}

// pair is a connection that a Group has accepted, and its other end.
func pair(t *testing.T, network string) (accepted, other net.Conn) {
	t.Helper()
	inner, err := net.Listen(network, anAddress(t, network))
	if err != nil {
		t.Fatal(err)
	}
	l := NewGroup("test", 0, nil).Listener(inner)
	defer l.Close()
	if other, err = net.Dial(network, inner.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close(); other.Close() })
	return accepted, other
}

// What is written arrives, also when it is more than the socket's buffer holds, in both
// directions at the same time.
func TestConnCarriesLargeData(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		a, b := pair(t, network)
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
		done := make(chan error, 3)
		write := func(c net.Conn) {
			n, err := c.Write(data)
			if err == nil && n != len(data) {
				err = io.ErrShortWrite
			}
			done <- err
		}
		go write(a)
		go write(b)
		go func() {
			got := make([]byte, len(data))
			_, err := io.ReadFull(a, got)
			if err == nil && !bytes.Equal(got, data) {
				err = errors.New("the accepted end read other bytes")
			}
			done <- err
		}()
		got := make([]byte, len(data))
		if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: other bytes, %v", network, err)
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Errorf("%s: %v", network, err)
			}
		}
	}
}

// Errors are those of package net.
func TestConnErrors(t *testing.T) {
	p := make([]byte, 16)
	for _, network := range []string{"unix", "tcp"} {
		a, b := pair(t, network)
		if n, err := a.Read(nil); n != 0 || err != nil {
			t.Errorf("%s: a read of nothing: %d, %v", network, n, err)
		}
		a.SetReadDeadline(time.Now().Add(time.Millisecond))
		var timeout net.Error
		if _, err := a.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%s: after the deadline: %v", network, err)
		}
		a.SetReadDeadline(time.Time{})
		b.Close()
		if _, err := a.Read(p); err != io.EOF {
			t.Errorf("%s: at the end: %v", network, err)
		}
		var failed *net.OpError
		var err error
		for deadline := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(deadline); {
			_, err = a.Write(p) // TCP notices with the second one
		}
		if !errors.As(err, &failed) || failed.Op != "write" || !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: a write to nobody: %v", network, err)
		}
		a.Close()
		if _, err := a.Read(p); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: a read after Close: %v", network, err)
		}
		if _, err := a.Write(p); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: a write after Close: %v", network, err)
		}
	}
}

// Close ends a Read that waits.
func TestConnCloseEndsRead(t *testing.T) {
	a, _ := pair(t, "unix")
	ended := make(chan error)
	go func() {
		_, err := a.Read(make([]byte, 1))
		ended <- err
	}()
	time.Sleep(time.Millisecond) // either order is right
	a.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestConnDoesNotAllocate(t *testing.T) {
	a, b := pair(t, "unix")
	p := make([]byte, 64)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := a.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, p); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(a, p); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

func TestDatagrams(t *testing.T) {
	for _, network := range []string{"udp", "unixgram"} {
		socket, err := net.ListenPacket(network, anAddress(t, network))
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial(network, socket.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		d := NewDatagrams(socket)
		p := make([]byte, 8)
		for _, text := range []string{"one", "", "longer than eight"} {
			if _, err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			n, err := d.Read(p)
			if want := text[:min(len(text), len(p))]; err != nil || string(p[:n]) != want {
				t.Errorf("%s: %q, %v, want %q", network, p[:n], err, want)
			}
		}
		socket.SetReadDeadline(time.Now())
		if _, err := d.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", network, err)
		}
		socket.Close()
		if _, err := d.Read(p); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", network, err)
		}
	}
}
