package zmtp

import (
	"net"
	"sync"
	"time"
)

// Server accepts connections and greets the peers. Its listener bounds the number of
// connections. Serve and Close are safe for concurrent use; the exported fields are
// set before.
type Server struct {
	// Kind is the kind of socket that peers connect to.
	Kind string
	// Timeout bounds the greeting of a peer and each write to it.
	Timeout time.Duration
	// Handle serves one peer, in a goroutine of its own. The connection is closed
	// when it returns.
	Handle func(*Conn)

	mu     sync.Mutex // guards what follows
	closed bool
	l      net.Listener
	conns  map[net.Conn]struct{}
	wait   sync.WaitGroup
}

// Serve accepts from l until Close, or until accepting fails. It closes l.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	s.l = l
	if s.conns == nil {
		s.conns = map[net.Conn]struct{}{}
	}
	if s.closed {
		l.Close()
	}
	s.mu.Unlock()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		s.accept(conn)
	}
}

// accept serves a connection.
func (s *Server) accept(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return
	}
	s.conns[conn] = struct{}{}
	s.wait.Go(func() {
		defer func() {
			conn.Close()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		}()
		if c, err := NewConn(conn, s.Kind, s.Timeout); err == nil {
			s.Handle(c)
		}
	})
}

// Close closes the listener and the connections, and waits until all of them are
// done.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	if s.l != nil {
		s.l.Close()
	}
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
}
