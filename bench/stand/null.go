package stand

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"
	"unsafe"
)

// ServeNull is an agent that does nothing, for the proxy of that name, haproxy or nginx: it
// answers each question at once, HAProxy's without a decision and nginx's with the next of n
// upstreams, and forgets what the feed says. It is one thread that leaves out Go's scheduler
// and collects no garbage, like a small program in C, so what it adds to a request is the
// proxy's and the kernel's own. It returns only if it fails.
func ServeNull(proxy, socket, feed string, upstreams []string) error {
	s := null{answer: answerSPOE, upstreams: upstreams}
	if proxy == "nginx" {
		s.answer = answerHTTP
	}
	asked, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	stream, err := net.Listen("tcp", feed)
	if err != nil {
		return err
	}
	datagrams, err := net.ListenPacket("udp", feed) // they are dropped when its buffer is full
	if err != nil {
		return err
	}
	defer datagrams.Close()
	debug.SetGCPercent(-1)
	if s.epoll, err = syscall.EpollCreate1(0); err != nil {
		return err
	}
	for _, l := range []struct {
		net.Listener
		of nullConn
	}{{asked, nullConn{accepts: true}}, {stream, nullConn{accepts: true, feed: true}}} {
		f, err := l.Listener.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			return err
		}
		l.of.fd = int(f.Fd())
		if err := s.watch(&l.of); err != nil {
			return err
		}
	}
	return s.serve()
}

// null is such an agent.
type null struct {
	epoll     int
	conns     []*nullConn // by descriptor
	answer    func(s *null, frames, reply []byte) (taken int, _ []byte)
	upstreams []string
	next      int
	reply     []byte
}

// nullConn is one of its sockets.
type nullConn struct {
	fd      int
	accepts bool
	feed    bool
	got     []byte // what was read and not answered
}

// nullBuffer is more than the largest question.
const nullBuffer = 1 << 20

func (s *null) watch(c *nullConn) error {
	for len(s.conns) <= c.fd {
		s.conns = append(s.conns, nil)
	}
	s.conns[c.fd] = c
	return syscall.EpollCtl(s.epoll, syscall.EPOLL_CTL_ADD, c.fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(c.fd)})
}

func (s *null) serve() error {
	var events [64]syscall.EpollEvent
	for {
		n, _, code := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(s.epoll), uintptr(unsafe.Pointer(&events)), uintptr(len(events)), ^uintptr(0), 0, 0)
		if code == syscall.EINTR {
			continue
		}
		if code != 0 {
			return os.NewSyscallError("epoll_pwait", code)
		}
		for _, e := range events[:n] {
			c := s.conns[e.Fd]
			if !c.accepts {
				s.read(c)
				continue
			}
			fd, _, err := syscall.Accept4(c.fd, syscall.SOCK_NONBLOCK)
			if err == nil {
				err = s.watch(&nullConn{fd: fd, feed: c.feed, got: make([]byte, 0, nullBuffer)})
			}
			if err != nil {
				return err
			}
		}
	}
}

// read reads once and answers the questions that are whole.
func (s *null) read(c *nullConn) {
	room := c.got[len(c.got):cap(c.got)]
	n, _, code := syscall.RawSyscall(syscall.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(room))), uintptr(len(room)))
	if code == syscall.EAGAIN || code == syscall.EINTR {
		return
	}
	if code != 0 || n == 0 {
		syscall.Close(c.fd)
		s.conns[c.fd] = nil
		return
	}
	if c.feed {
		return
	}
	c.got = c.got[:len(c.got)+int(n)]
	taken := 0
	taken, s.reply = s.answer(s, c.got, s.reply[:0])
	if len(s.reply) > 0 {
		_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(c.fd), uintptr(unsafe.Pointer(&s.reply[0])), uintptr(len(s.reply)))
	}
	c.got = c.got[:copy(c.got, c.got[taken:])]
}

// SPOE's frames: their types, and where the ids of a question begin.
const (
	haproxyHello      = 1
	haproxyDisconnect = 2
	haproxyNotify     = 3
	agentHello        = 101
	agentDisconnect   = 102
	agentAck          = 103
	afterFlags        = 9 // the length, the type and the flags
)

func answerSPOE(_ *null, frames, reply []byte) (taken int, _ []byte) {
	for {
		f := frames[taken:]
		if len(f) < 4 || len(f)-4 < int(binary.BigEndian.Uint32(f)) {
			return taken, reply
		}
		size := 4 + int(binary.BigEndian.Uint32(f))
		f, taken = f[:size], taken+size
		switch {
		case size <= afterFlags:
		case f[4] == haproxyHello:
			most := []byte{0xfc, 0xf0, 6} // 16380
			if _, after, ok := bytes.Cut(f, []byte("max-frame-size")); ok {
				most = after[1 : 1+varint(after[1:])]
			}
			reply = spoeFrame(reply, agentHello, []byte("\x00\x00\x07version\x08\x032.0\x0emax-frame-size\x03"), most, []byte("\x0ccapabilities\x08\x0apipelining"))
		case f[4] == haproxyNotify:
			stream := varint(f[afterFlags:])
			reply = spoeFrame(reply, agentAck, f[afterFlags:afterFlags+stream+varint(f[afterFlags+stream:])])
		case f[4] == haproxyDisconnect:
			reply = spoeFrame(reply, agentDisconnect, []byte("\x00\x00\x0bstatus-code\x03\x00\x07message\x08\x02ok"))
		}
	}
}

// spoeFrame appends a frame that is not fragmented.
func spoeFrame(reply []byte, kind byte, parts ...[]byte) []byte {
	start := len(reply)
	reply = append(reply, 0, 0, 0, 0, kind, 0, 0, 0, 1)
	for _, p := range parts {
		reply = append(reply, p...)
	}
	binary.BigEndian.PutUint32(reply[start:], uint32(len(reply)-start-4))
	return reply
}

// varint is the length of the number that b begins with.
func varint(b []byte) int {
	n := 1
	if b[0] >= 240 {
		for n++; b[n-1] >= 128; n++ {
		}
	}
	return n
}

func answerHTTP(s *null, requests, reply []byte) (taken int, _ []byte) {
	for {
		head, _, ok := bytes.Cut(requests[taken:], []byte("\r\n\r\n"))
		if !ok {
			return taken, reply
		}
		whole := len(head) + 4 + number(head, "Content-Length: ")
		if len(requests)-taken < whole {
			return taken, reply
		}
		taken += whole
		s.next++
		reply = fmt.Appendf(reply, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Accel-Redirect: @pm_target\r\nX-Pointsman-Server: %s\r\n\r\n", s.upstreams[s.next%len(s.upstreams)])
	}
}

// number is the value of a header, 0 without it.
func number(head []byte, header string) int {
	_, after, _ := bytes.Cut(head, []byte(header))
	line, _, _ := bytes.Cut(after, []byte("\r\n"))
	n, _ := strconv.Atoi(string(line))
	return n
}
