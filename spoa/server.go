package spoa

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"pointsman/listen"
)

// Defaults for the fields of Server that are zero.
const (
	DefaultMaxFrame     = 4 << 20          // bytes; what a tune.bufsize of 4 MiB can send
	DefaultIdleTimeout  = 65 * time.Minute // longer than HAProxy's own `timeout idle`, so that HAProxy closes first
	DefaultWriteTimeout = 10 * time.Second
	DefaultMaxConns     = 1024
)

// ErrServerClosed is returned by Serve after Shutdown.
var ErrServerClosed = errors.New("spoa: server closed")

// Handler answers one message. It is called on the goroutine that reads the
// connection, so concurrently for several connections. The messages of a frame are
// handled one after the other and share their Reply. A Handler calls Message.Block
// before it waits for something, and should not wait for long: Message.Later delays
// an answer that must wait. Until the answer is sent, the frame occupies one of the connection's 32
// slots. When the Handler panics, the frame is answered without variables.
type Handler func(m *Message, w *Reply)

// Server is a SPOE agent. Its fields must not change after the first Serve,
// MaxConns by SetMaxConns excepted.
type Server struct {
	Handler      Handler       // required
	MaxFrame     int           // bytes of a frame at most, at least 256; larger ones are negotiated down
	IdleTimeout  time.Duration // how long a connection may be silent between two frames
	WriteTimeout time.Duration // how long a peer may refuse to read
	MaxConns     int           // of all listeners together
	Log          *slog.Logger  // nil means slog.Default()

	stats   counters
	peers   listen.BurstLog // lines about what peers send
	crashes listen.BurstLog // lines about panics, never suppressed because of the former

	mu        sync.Mutex
	closing   bool
	accepted  *listen.Group // bounds and counts connections; nil before the first Serve
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{} // being served
	ended     chan struct{}      // closed when closing and the last connection has ended
}

// Stats are counts since the server was made, except Open.
type Stats struct {
	Open      int    // connections now
	Accepted  uint64 // connections served, HAProxy's checks among them
	Refused   uint64 // connections closed at once because of MaxConns
	Frames    uint64 // frames read whole, of any kind
	Messages  uint64 // messages given to the Handler
	Malformed uint64 // connections closed because of what their peer sent, or began to
	Panics    uint64 // recovered, in handlers and connections
	Dropped   uint64 // variables that did not fit into their ACK
}

type counters struct {
	frames, messages, malformed, panics, dropped atomic.Uint64
}

// Stats may be called at any time. The counts are read one by one.
func (s *Server) Stats() Stats {
	var conns listen.Stats
	s.mu.Lock()
	if s.accepted != nil {
		conns = s.accepted.Stats()
	}
	s.mu.Unlock()
	return Stats{
		Open:      conns.Open,
		Accepted:  conns.Accepted,
		Refused:   conns.Refused,
		Frames:    s.stats.frames.Load(),
		Messages:  s.stats.messages.Load(),
		Malformed: s.stats.malformed.Load(),
		Panics:    s.stats.panics.Load(),
		Dropped:   s.stats.dropped.Load(),
	}
}

// Serve accepts connections from l until Shutdown, and then returns
// ErrServerClosed at once, or until l fails for good. It closes l. Several
// listeners may be served at the same time.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close() // where addListener refuses it
	l, ok := s.addListener(l)
	if !ok {
		return ErrServerClosed
	}
	defer s.dropListener(l)
	for {
		sock, err := l.Accept()
		if err != nil {
			if s.isClosing() {
				return ErrServerClosed
			}
			return err
		}
		s.start(sock)
	}
}

// SetMaxConns changes MaxConns while connections are served. Connections that
// are already open stay open.
func (s *Server) SetMaxConns(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.MaxConns = n
	if s.accepted != nil {
		s.accepted.SetLimit(orDefault(n, DefaultMaxConns))
	}
}

// start serves a connection on its own goroutine.
func (s *Server) start(sock net.Conn) {
	c := newConn(s, sock)
	s.mu.Lock()
	closing := s.closing
	if !closing {
		if s.conns == nil {
			s.conns = map[*conn]struct{}{}
		}
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if closing {
		sock.Close()
		return
	}
	go c.serve()
}

// Shutdown stops accepting, reads what has already been sent, lets the handlers
// finish, sends their ACKs and closes every connection. It cuts a connection that
// keeps sending off between two frames after a second; HAProxy goes on without a
// decision for what it sends later. If ctx ends first, Shutdown closes what is left
// and returns the error of ctx; handlers may then still run.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		s.ended = make(chan struct{})
		for l := range s.listeners {
			l.Close()
		}
		for c := range s.conns {
			c.drain()
		}
		if len(s.conns) == 0 {
			close(s.ended)
		}
	}
	ended := s.ended
	s.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		c.sock.Close()
	}
	s.mu.Unlock()
	return ctx.Err()
}

// addListener returns the listener to accept from in the place of l, or false
// after Shutdown.
func (s *Server) addListener(l net.Listener) (net.Listener, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, false
	}
	if s.accepted == nil {
		s.accepted = listen.NewGroup("spoe", orDefault(s.MaxConns, DefaultMaxConns), s.log())
	}
	l = s.accepted.Listener(l)
	if s.listeners == nil {
		s.listeners = map[net.Listener]struct{}{}
	}
	s.listeners[l] = struct{}{}
	return l, true
}

func (s *Server) dropListener(l net.Listener) {
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
}

func (s *Server) dropConn(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	if s.closing && len(s.conns) == 0 {
		close(s.ended)
	}
	s.mu.Unlock()
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func (s *Server) panicked(where string, p any, stack []byte) {
	s.stats.panics.Add(1)
	s.crashes.Warn(s.log(), "spoa: recovered from a panic", "in", where, "panic", p, "stack", string(stack))
}

func (s *Server) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.Default()
}

func (s *Server) maxFrame() int {
	return max(orDefault(s.MaxFrame, DefaultMaxFrame), minMaxFrame)
}

func (s *Server) idleTimeout() time.Duration { return orDefault(s.IdleTimeout, DefaultIdleTimeout) }

func (s *Server) writeTimeout() time.Duration { return orDefault(s.WriteTimeout, DefaultWriteTimeout) }

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}
