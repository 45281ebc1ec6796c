package listen

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Polled is a socket of datagrams that wakes its reader only while it is watched. At other
// times those who are awake anyway call Drain. It is safe for concurrent use.
type Polled struct {
	watched atomic.Bool // changed under mu

	mu     sync.Mutex
	fd     int // the socket, which Go's poller does not know; -1 = closed
	buffer []byte

	// The socket is in an epoll set while it is watched. Go's poller knows the set.
	set   int // valid while fd is
	file  *os.File
	ready syscall.RawConn
}

// NewPolled takes over c, which is watched from now on. A datagram has at most size bytes;
// longer ones are cut.
func NewPolled(c net.PacketConn, size int) (*Polled, error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &Polled{buffer: make([]byte, size)}
	if p.set, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err = syscall.SetNonblock(p.set, true); err != nil {
		syscall.Close(p.set)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p.file = os.NewFile(uintptr(p.set), "epoll")
	if p.ready, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		if p.fd, err = syscall.Dup(int(fd)); err == nil {
			syscall.CloseOnExec(p.fd)
		}
	})
	if err = errors.Join(failed, os.NewSyscallError("dup", err)); err == nil {
		if err = p.Watch(true); err != nil {
			syscall.Close(p.fd)
		}
	}
	if err != nil {
		p.file.Close()
		return nil, err
	}
	_ = c.Close() // Go's poller forgets the socket, of which p has a copy
	return p, nil
}

// Watch says whether datagrams wake Serve.
func (p *Polled) Watch(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 || on == p.watched.Load() {
		return nil
	}
	op := syscall.EPOLL_CTL_DEL
	if on {
		op = syscall.EPOLL_CTL_ADD
	}
	if err := syscall.EpollCtl(p.set, op, p.fd, &syscall.EpollEvent{Events: syscall.EPOLLIN}); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	p.watched.Store(on)
	return nil
}

// Watched reports whether datagrams wake Serve.
func (p *Polled) Watched() bool { return p.watched.Load() }

// drainedAtOnce bounds the datagrams that one Drain reads: whoever calls it has other work.
const drainedAtOnce = 64

// Drain hands the datagrams that have arrived to handle, which must not keep them. It does
// not wait. It reports false if it has left some.
func (p *Polled) Drain(handle func([]byte)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return true
	}
	for range drainedAtOnce {
		n, err := TryRead(uintptr(p.fd), p.buffer)
		if err != nil {
			return true
		}
		handle(p.buffer[:n])
	}
	return false
}

// Serve drains the socket every so often, and at once when a datagram arrives while it is
// watched, until Close.
func (p *Polled) Serve(every time.Duration, handle func([]byte)) error {
	drain := func(uintptr) bool {
		for !p.Drain(handle) {
		}
		return false
	}
	for {
		err := p.file.SetReadDeadline(time.Now().Add(every))
		if err == nil {
			err = p.ready.Read(drain)
		}
		switch {
		case p.closed():
			return nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
	}
}

func (p *Polled) closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fd < 0
}

// Close closes the socket and ends Serve.
func (p *Polled) Close() {
	p.mu.Lock()
	fd := p.fd
	p.fd = -1
	p.mu.Unlock()
	if fd >= 0 {
		syscall.Close(fd)
		p.file.Close()
	}
}
