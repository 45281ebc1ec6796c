package listen

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a listener that returns what next returns.
type scripted struct {
	next   func() (net.Conn, error)
	closed bool
}

func (s *scripted) Accept() (net.Conn, error) { return s.next() }
func (s *scripted) Close() error              { s.closed = true; return nil }
func (s *scripted) Addr() net.Addr            { return &net.TCPAddr{} }

// accept4 is an error as package net returns it.
func accept4(err error) error {
	return &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
}

// Each error that passes is retried with growing pauses, and the burst takes
// two log lines. An error that does not pass ends Accept.
func TestAcceptRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := NewGroup("spoe", 0, slog.New(slog.NewTextHandler(&log, nil)))
		errs := []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS, syscall.ENOMEM,
			syscall.EPROTO, syscall.EMFILE, syscall.EMFILE, syscall.EMFILE, syscall.EMFILE}
		a, _ := net.Pipe()
		failed := false
		l := g.Listener(&scripted{next: func() (net.Conn, error) {
			if len(errs) > 0 {
				err := errs[0]
				errs = errs[1:]
				return nil, accept4(err)
			}
			if failed {
				return nil, io.ErrUnexpectedEOF
			}
			failed = true
			return a, nil
		}})
		began := time.Now()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		// 5, 10, 20 … 640 ms, then 1 s twice
		if took := time.Since(began); took != 3275*time.Millisecond {
			t.Errorf("waited %v", took)
		}
		c.Close()
		if _, err := l.Accept(); err != io.ErrUnexpectedEOF {
			t.Errorf("Accept: %v", err)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "too many open files") || !strings.Contains(lines[1], "failures=10") {
			t.Errorf("log:\n%s", log.String())
		}
	})
}

func TestRetryable(t *testing.T) {
	for err, want := range map[error]bool{
		accept4(syscall.EMFILE):       true,
		accept4(syscall.ECONNABORTED): true,
		syscall.EAGAIN:                true, // temporary by its own account
		accept4(syscall.EBADF):        false,
		accept4(syscall.EINVAL):       false,
		net.ErrClosed:                 false,
		io.EOF:                        false,
	} {
		if got := retryable(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// Close ends an Accept that pauses.
func TestCloseEndsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &scripted{next: func() (net.Conn, error) { return nil, accept4(syscall.EMFILE) }}
		l := NewGroup("feed", 0, slog.New(slog.DiscardHandler)).Listener(inner)
		ended := make(chan error)
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
		time.Sleep(time.Hour)
		l.Close()
		l.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) || !inner.closed {
			t.Errorf("Accept: %v", err)
		}
	})
}

// served accepts until l is closed and keeps what it accepts.
func served(t *testing.T, g *Group, network, address string) (net.Addr, chan net.Conn) {
	inner, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	l := g.Listener(inner)
	conns := make(chan net.Conn, 100)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				return
			}
			conns <- c
		}
	})
	t.Cleanup(func() { l.Close(); done.Wait() })
	return inner.Addr(), conns
}

func dial(t *testing.T, a net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial(a.Network(), a.String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return c
}

// closedByPeer waits until the other side has closed c.
func closedByPeer(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("not closed: %v", err)
	}
}

// The limit holds over all listeners of a group and may change while it runs. A
// peer that sees the end of its connection finds it counted already.
func TestLimit(t *testing.T) {
	var log bytes.Buffer
	g := NewGroup("nginx", 2, slog.New(slog.NewTextHandler(&log, nil)))
	tcp, fromTCP := served(t, g, "tcp", "127.0.0.1:0")
	unix, fromUnix := served(t, g, "unix", t.TempDir()+"/s")
	want := func(open int, accepted, refused uint64) {
		t.Helper()
		if s := g.Stats(); s != (Stats{open, accepted, refused}) {
			t.Errorf("%+v, want %d open, %d accepted, %d refused", s, open, accepted, refused)
		}
	}

	began := time.Now()
	first := dial(t, tcp)
	a := <-fromTCP
	dial(t, unix)
	b := <-fromUnix
	want(2, 2, 0)
	for n := range uint64(50) {
		closedByPeer(t, dial(t, []net.Addr{tcp, unix}[n%2]))
		want(2, 2, n+1)
	}
	if lines, most := strings.Count(log.String(), "\n"), int(time.Since(began).Seconds())+2; lines > most {
		t.Errorf("%d log lines, at most one a second would be %d", lines, most)
	}

	a.Close()
	a.Close()
	closedByPeer(t, first)
	want(1, 2, 50)
	dial(t, tcp)
	c := <-fromTCP
	want(2, 3, 50)

	g.SetLimit(3)
	dial(t, unix)
	d := <-fromUnix
	want(3, 4, 50)
	g.SetLimit(1) // nobody is thrown out
	if n := g.Limit(); n != 1 {
		t.Errorf("limit %d", n)
	}
	closedByPeer(t, dial(t, tcp))
	want(3, 4, 51)
	for _, c := range []net.Conn{b, c, d} {
		c.Close()
	}
	want(0, 4, 51)
}

// Without a limit nothing is refused, and the accepted connection is at hand.
func TestNoLimit(t *testing.T) {
	g := NewGroup("admin", 0, nil)
	addr, conns := served(t, g, "tcp", "127.0.0.1:0")
	for range 100 {
		dial(t, addr)
		c := <-conns
		if _, ok := c.(*Conn).Conn.(*net.TCPConn); !ok {
			t.Fatalf("%T", c.(*Conn).Conn)
		}
		defer c.Close()
	}
	if s := g.Stats(); s.Open != 100 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

// Connections that end all at once, from both sides, leave no count behind.
func TestCountsUnderLoad(t *testing.T) {
	g := NewGroup("spoe", 8, slog.New(slog.DiscardHandler))
	addr, conns := served(t, g, "tcp", "127.0.0.1:0")
	stop := make(chan struct{})
	var server, clients sync.WaitGroup
	server.Go(func() {
		for {
			select {
			case c := <-conns:
				go c.Close()
				if n := g.Stats().Open; n > 8 {
					t.Errorf("%d open", n)
				}
			case <-stop:
				return
			}
		}
	})
	const each, peers = 50, 8
	for range peers {
		clients.Go(func() {
			for range each {
				c, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Error(err)
					return
				}
				c.SetDeadline(time.Now().Add(20 * time.Second))
				c.Read(make([]byte, 1))
				c.Close()
			}
		})
	}
	clients.Wait()
	close(stop)
	server.Wait()
	if s := g.Stats(); s.Open != 0 || s.Accepted+s.Refused != each*peers {
		t.Errorf("%+v", s)
	}
}
