// Package listen accepts connections for the servers of the agent. A Group
// retries failed accepts, bounds the number of open connections and counts
// them, over all listeners of one server. Connections and sockets of datagrams are read
// without waking threads of Go's scheduler.
package listen

import (
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Group bounds and counts the connections of one server, which may have several
// listeners. It is safe for concurrent use.
type Group struct {
	service string
	log     *slog.Logger
	limit   atomic.Int64

	open              atomic.Int64
	accepted, refused atomic.Uint64

	refusals BurstLog
}

// NewGroup returns a Group that admits at most limit connections at a time, any
// number if limit is not positive. service names the server in log lines; a nil
// log means slog.Default().
func NewGroup(service string, limit int, log *slog.Logger) *Group {
	if log == nil {
		log = slog.Default()
	}
	g := &Group{service: service, log: log}
	g.SetLimit(limit)
	return g
}

// SetLimit changes the limit. Connections that are already open stay open.
func (g *Group) SetLimit(limit int) { g.limit.Store(int64(limit)) }

// Limit returns the limit as it is now.
func (g *Group) Limit() int { return int(g.limit.Load()) }

// Stats are counts since the Group was made, except Open.
type Stats struct {
	Open     int    // connections now
	Accepted uint64 // connections that were handed to the server
	Refused  uint64 // connections closed at once because of the limit
}

// Stats may be called at any time. The counts are read one by one. A peer that
// has seen its connection refused or closed is already counted.
func (g *Group) Stats() Stats {
	return Stats{Open: int(g.open.Load()), Accepted: g.accepted.Load(), Refused: g.refused.Load()}
}

// Listener returns a listener that takes its connections from l. Accept returns
// connections of type *Conn only. It fails only when it is closed or when l is
// beyond recovery.
func (g *Group) Listener(l net.Listener) net.Listener {
	return &listener{Listener: l, group: g, closed: make(chan struct{})}
}

// listener is one listener of a group.
type listener struct {
	net.Listener
	group  *Group
	once   sync.Once
	closed chan struct{} // closed by Close; ends a pause between two attempts
}

// The pause after a failed accept doubles from minPause to maxPause.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// Accept waits for a connection, and closes those above the limit. If that fails for a
// time, for example because too many files are open, it tries again after a pause.
func (l *listener) Accept() (net.Conn, error) {
	var pause time.Duration
	failures := 0
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil && failures > 0:
			l.group.log.Info("accepting connections again", "service", l.group.service, "failures", failures)
			pause, failures = 0, 0
		case err != nil && !retryable(err):
			return nil, err
		case err != nil:
			if failures++; failures == 1 {
				l.group.log.Warn("cannot accept connections, retrying", "service", l.group.service, "error", err)
			}
			pause = min(max(2*pause, minPause), maxPause)
			if !l.wait(pause) {
				return nil, net.ErrClosed
			}
			continue
		}
		if c := l.group.admit(c); c != nil {
			return c, nil
		}
	}
}

// wait pauses for d. It reports false when the listener is closed meanwhile.
func (l *listener) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.closed:
		return false
	}
}

// Close closes the listener and ends a pending Accept. Open connections stay
// open.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// admit counts c in, or refuses it and returns nil.
func (g *Group) admit(c net.Conn) *Conn {
	limit := g.limit.Load()
	for {
		open := g.open.Load()
		if limit <= 0 || open < limit {
			if g.open.CompareAndSwap(open, open+1) {
				g.accepted.Add(1)
				return &Conn{Conn: c, group: g, direct: newDirect(c)}
			}
			continue
		}
		g.refused.Add(1)
		g.refusals.Warn(g.log, "connection refused: too many are open", "service", g.service, "limit", limit)
		c.Close()
		return nil
	}
}

// Conn is an accepted connection. It counts as open until Close. The embedded
// connection is the one that the listener accepted: a server that needs more
// than net.Conn finds it there.
type Conn struct {
	net.Conn
	group  *Group
	direct direct
	closed atomic.Bool
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.direct.raw == nil || len(p) == 0 {
		return c.Conn.Read(p)
	}
	n, err := c.direct.transfer(&reads, c.Conn, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	if c.direct.raw == nil {
		return c.Conn.Write(p)
	}
	return c.direct.transfer(&writes, c.Conn, p)
}

// Close first stops counting the connection, then closes it.
func (c *Conn) Close() error {
	if !c.closed.Swap(true) {
		c.group.open.Add(-1)
	}
	return c.Conn.Close()
}
