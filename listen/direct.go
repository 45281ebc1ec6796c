package listen

import (
	"net"
	"os"
	"sync"
	"syscall"
)

// direct reads and writes a socket in system calls that Go's scheduler is not informed of;
// nil does not. An idle process otherwise wakes a thread of the scheduler with the first
// system call of each request, and that thread then looks every 20 µs whether the call
// blocks. Calls on a socket that does not block never do: they wait in Go's poller, as
// usual.
type direct struct{ syscall.RawConn }

// newDirect returns nil if c is no socket, or where there are no such calls.
func newDirect(c any) direct {
	if s, ok := c.(syscall.Conn); ok && unreported {
		if raw, err := s.SyscallConn(); err == nil {
			return direct{raw}
		}
	}
	return direct{}
}

// transfer is one read or write. It is reused, so that none allocates.
type transfer struct {
	try func(fd uintptr) bool
	p   []byte
	n   int
	err error
}

var (
	reads  = sync.Pool{New: func() any { t := new(transfer); t.try = t.read; return t }}
	writes = sync.Pool{New: func() any { t := new(transfer); t.try = t.write; return t }}
)

// read reads into p from c, whose socket it is.
func (d direct) read(c net.Conn, p []byte) (int, error) {
	t := reads.Get().(*transfer)
	defer reads.Put(t)
	t.p, t.n, t.err = p, 0, nil
	err := d.Read(t.try)
	t.p = nil
	if t.err != nil {
		err = failed(c, "read", t.err)
	}
	return t.n, err
}

// write writes p to c, whose socket it is.
func (d direct) write(c net.Conn, p []byte) (int, error) {
	t := writes.Get().(*transfer)
	defer writes.Put(t)
	t.p, t.n, t.err = p, 0, nil
	err := d.Write(t.try)
	t.p = nil
	if t.err != nil {
		err = failed(c, "write", t.err)
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

// failed is err as package net reports it.
func failed(c net.Conn, op string, err error) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

// Datagrams reads a socket of datagrams as Conn reads a connection.
type Datagrams struct {
	socket net.PacketConn
	direct direct
}

// NewDatagrams returns a reader of c.
func NewDatagrams(c net.PacketConn) *Datagrams { return &Datagrams{c, newDirect(c)} }

// Read reads one datagram, the part of it that fits into p.
func (d *Datagrams) Read(p []byte) (int, error) {
	if c, ok := d.socket.(net.Conn); ok && d.direct.RawConn != nil {
		return d.direct.read(c, p)
	}
	n, _, err := d.socket.ReadFrom(p)
	return n, err
}
