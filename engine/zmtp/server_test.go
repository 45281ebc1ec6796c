package zmtp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zeromq/zmq4"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The library leaves one goroutine of each socket behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*pubMWriter).run"))
}

// start serves peers on loopback until the test ends.
func start(t *testing.T, s *Server) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve returns %v", err)
		}
	})
	return l.Addr().String()
}

// dial connects to a server as a socket of that kind.
func dial(t *testing.T, address, kind string) (*Conn, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return NewConn(conn, kind, 10*time.Second)
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 6000 { // a minute
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("timed out waiting for " + what)
}

// A SUB socket of the library gets what it has subscribed to, whichever side
// listens.
func TestPublisherServesALibrary(t *testing.T) {
	var p Publisher
	address := start(t, &Server{Kind: "PUB", Timeout: 10 * time.Second, Handle: p.Handle})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	large := strings.Repeat("x", 300_000)
	for _, side := range []string{"dials", "listens"} {
		sub := zmq4.NewSub(ctx)
		if err := sub.SetOption(zmq4.OptionSubscribe, "kv"); err != nil {
			t.Fatal(err)
		}
		var dialled sync.WaitGroup
		if side == "dials" {
			if err := sub.Dial("tcp://" + address); err != nil {
				t.Fatal(err)
			}
		} else {
			if err := sub.Listen("tcp://127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			c, err := dial(t, sub.Addr().String(), "PUB")
			if err != nil {
				t.Fatal(err)
			}
			dialled.Go(func() { p.Handle(c) })
		}
		until(t, "the subscription", func() bool { return p.subscriptions() == 1 })
		p.Send([]byte("other"), []byte("not for you"))
		p.Send([]byte("kv-events"), nil, []byte(large))
		if msg, err := sub.Recv(); err != nil || len(msg.Frames) != 3 || string(msg.Frames[0]) != "kv-events" || len(msg.Frames[1]) != 0 || string(msg.Frames[2]) != large {
			t.Errorf("the library %s: %d frames, %v", side, len(msg.Frames), err)
		}
		sub.Close()
		until(t, "the subscriber to be gone", func() bool { return p.subscriptions() == 0 })
		dialled.Wait()
	}
}

// subscriptions is the number of subscriptions of all peers.
func (p *Publisher) subscriptions() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.peers {
		n += len(s.topics)
	}
	return n
}

// A DEALER socket of the library gets answers from a ROUTER.
func TestServerAnswersALibrary(t *testing.T) {
	address := start(t, &Server{Kind: "ROUTER", Timeout: 10 * time.Second, Handle: func(c *Conn) {
		for {
			f, err := c.Receive()
			if err != nil {
				return
			}
			if err := c.Send(f[0], append([]byte("re: "), f[1]...)); err != nil {
				return
			}
		}
	}})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dealer := zmq4.NewDealer(ctx)
	defer dealer.Close()
	if err := dealer.Dial("tcp://" + address); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := dealer.SendMulti(zmq4.NewMsgFrom(nil, fmt.Append(nil, i))); err != nil {
			t.Fatal(err)
		}
		if msg, err := dealer.Recv(); err != nil || len(msg.Frames) != 2 || string(msg.Frames[1]) != fmt.Sprint("re: ", i) {
			t.Errorf("%q, %v", msg.Frames, err)
		}
	}
}

// A peer can subscribe and unsubscribe; a malformed or endless list of
// subscriptions ends its connection.
func TestPublisherSubscriptions(t *testing.T) {
	var p Publisher
	address := start(t, &Server{Kind: "PUB", Timeout: 10 * time.Second, Handle: p.Handle})
	c, err := dial(t, address, "SUB")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		message string
		want    int
	}{{"\x01a", 1}, {"\x01b", 2}, {"\x00a", 1}, {"\x00never", 1}, {"\x01", 2}} {
		if err := c.Send([]byte(step.message)); err != nil {
			t.Fatal(err)
		}
		until(t, fmt.Sprintf("%d subscriptions after %q", step.want, step.message), func() bool { return p.subscriptions() == step.want })
	}
	p.Send([]byte("anything"))
	if f, err := c.Receive(); err != nil || string(f[0]) != "anything" {
		t.Errorf("%q, %v", f, err)
	}
	for what, send := range map[string]func(c *Conn) error{
		"two frames":     func(c *Conn) error { return c.Send([]byte("\x01a"), nil) },
		"an empty frame": func(c *Conn) error { return c.Send(nil) },
		"another byte":   func(c *Conn) error { return c.Send([]byte("hi")) },
		"too many topics": func(c *Conn) (err error) {
			for range maxTopics + 1 {
				err = errors.Join(err, c.Send([]byte("\x01a")))
			}
			return nil // the connection may have ended before the last one
		},
	} {
		c, err := dial(t, address, "SUB")
		if err != nil {
			t.Fatal(err)
		}
		if err := send(c); err != nil {
			t.Fatal(err)
		}
		if f, err := c.Receive(); err == nil {
			t.Errorf("%s: %q", what, f)
		}
	}
}

// A subscriber that does not read loses messages beyond its queue, and its
// connection once a write takes too long. Sending never waits for it.
func TestPublisherDropsAStalledPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go func() {
			io.ReadFull(theirs, make([]byte, 64+27)) // our greeting
			theirs.Write(append(greeting(), "\x00\x01\x01"...))
		}()
		c, err := NewConn(ours, "PUB", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var p Publisher
		done := make(chan struct{})
		go func() { p.Handle(c); close(done) }()
		synctest.Wait()
		start := time.Now()
		for range 2 * maxQueued {
			p.Send([]byte("topic"))
		}
		p.mu.Lock()
		queued := 0
		for s := range p.peers {
			queued = len(s.queue)
		}
		p.mu.Unlock()
		if queued < maxQueued-1 || time.Since(start) > 0 {
			t.Errorf("%d messages are queued after %v", queued, time.Since(start))
		}
		<-done
		if passed := time.Since(start); passed != time.Second || p.subscriptions() != 0 {
			t.Errorf("the peer is dropped after %v, %d subscriptions are left", passed, p.subscriptions())
		}
	})
}

// A peer that does not send a greeting is dropped.
func TestServerDropsSilentPeers(t *testing.T) {
	address := start(t, &Server{Kind: "PUB", Timeout: 50 * time.Millisecond, Handle: func(*Conn) { t.Error("a silent peer is served") }})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if b, err := io.ReadAll(conn); err != nil || !bytes.Equal(b, appendGreeting(nil, "PUB")) {
		t.Errorf("%q, %v", b, err)
	}
}

// Close ends connections that wait, and a server that was closed accepts none.
func TestServerCloses(t *testing.T) {
	s := &Server{Kind: "PUB", Timeout: 10 * time.Second}
	served := make(chan struct{})
	s.Handle = func(c *Conn) { close(served); c.Receive() }
	address := start(t, s)
	c, err := dial(t, address, "SUB")
	if err != nil {
		t.Fatal(err)
	}
	<-served
	s.Close()
	if _, err := c.Receive(); err == nil {
		t.Error("the connection is open after Close")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
}
