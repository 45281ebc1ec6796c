package listen

import (
	"net"
	"os"
	"sync"
	"syscall"
)

// direct reads and writes a socket by system calls that Go's scheduler does not watch. The
// first system call of an idle process that it does watch wakes one of its threads, which
// then checks every 20 µs whether the call blocks. A call on a non-blocking socket never
// does: direct waits in Go's poller, as package net does. Its zero value has no socket.
type direct struct{ raw syscall.RawConn }

// newDirect returns the zero value if c is no socket, or where there are no such calls.
func newDirect(c net.Conn) direct {
	if s, ok := c.(syscall.Conn); ok && unwatched {
		if raw, err := s.SyscallConn(); err == nil {
			return direct{raw}
		}
	}
	return direct{}
}

// transfer is one read or write. It is reused, so that none allocates.
type transfer struct {
	op   string // as package net names it
	wait func(c syscall.RawConn, try func(fd uintptr) bool) error
	try  func(fd uintptr) bool
	p    []byte
	n    int
	err  error
}

var (
	reads = sync.Pool{New: func() any {
		t := &transfer{op: "read", wait: syscall.RawConn.Read}
		t.try = t.read
		return t
	}}
	writes = sync.Pool{New: func() any {
		t := &transfer{op: "write", wait: syscall.RawConn.Write}
		t.try = t.write
		return t
	}}
)

// transfer reads p from c or writes it to c, whose socket d is.
func (d direct) transfer(pool *sync.Pool, c net.Conn, p []byte) (int, error) {
	t := pool.Get().(*transfer)
	defer pool.Put(t)
	t.p, t.n, t.err = p, 0, nil
	err := t.wait(d.raw, t.try)
	t.p = nil
	if t.err != nil {
		// As package net reports it.
		err = &net.OpError{Op: t.op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(t.op, t.err)}
	}
	return t.n, err
}

func (t *transfer) read(fd uintptr) bool {
	t.n, t.err = TryRead(fd, t.p)
	return !t.again()
}

func (t *transfer) write(fd uintptr) bool {
	for t.n < len(t.p) {
		n, err := tryWrite(fd, t.p[t.n:])
		if t.err = err; t.again() {
			return false
		}
		if err != nil {
			return true
		}
		t.n += n
	}
	return true
}

// again reports whether the socket was not ready, and clears the error.
func (t *transfer) again() bool {
	if t.err != syscall.EAGAIN { //nolint:errorlint // nothing wraps it
		return false
	}
	t.err = nil
	return true
}

// Datagrams reads a socket of datagrams as Conn reads a connection.
type Datagrams struct {
	socket net.PacketConn
	conn   net.Conn // the same socket; nil without direct calls
	direct direct
}

// NewDatagrams returns a reader of c.
func NewDatagrams(c net.PacketConn) *Datagrams {
	conn, _ := c.(net.Conn)
	return &Datagrams{c, conn, newDirect(conn)}
}

// Read reads one datagram, the part of it that fits into p.
func (d *Datagrams) Read(p []byte) (int, error) {
	if d.direct.raw != nil {
		return d.direct.transfer(&reads, d.conn, p)
	}
	n, _, err := d.socket.ReadFrom(p)
	return n, err
}
