package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"unsafe"
)

const (
	// maxPage bounds a page of metrics, in bytes, and maxAnswer all of an answer.
	maxPage   = 16 << 20
	maxAnswer = 2 * maxPage
	// The room for an answer, in bytes: at first, and what is kept for the next.
	firstRoom = 16 << 10
	keptRoom  = 1 << 20
	// mostAtOnce bounds what is read at once, in bytes: some 50 µs.
	mostAtOnce = 256 << 10
)

var (
	// errHost tells of an address that is none.
	errHost = errors.New("the replica's address is no host:port")
	// errPending tells that the answer is not there yet.
	errPending = errors.New("has not answered yet")
)

// httpFetcher gets pages from one engine over one connection that is kept. It
// never waits: to connect is done aside, and it sends and reads what the kernel
// takes and has. So one goroutine serves any number of them, and none holds up
// another. It is not safe for concurrent use.
//
// The socket is not one that Go's runtime watches: it would wake up for each
// answer by itself, which costs about as much as to read it.
type httpFetcher struct {
	address string // the replica's
	path    string // what request asks for
	host    string // of whom
	request []byte

	dialing *dialing // nil = none is under way
	socket  int      // -1 = none
	used    bool     // an answer has come over the socket
	in      []byte   // what has come of the answer is in[:n]
	n       int
	reply   httpReply
}

func newHTTPFetcher(address string) *httpFetcher {
	return &httpFetcher{address: address, socket: -1, in: make([]byte, firstRoom)}
}

// ask sends for the page at path, which may begin with a port of its own. What
// was asked for before must have been answered, or have failed.
func (f *httpFetcher) ask(path string) error {
	if path != f.path {
		if err := f.prepare(path); err != nil {
			return err
		}
	}
	f.n, f.reply = 0, httpReply{}
	if len(f.in) > keptRoom {
		f.in = make([]byte, firstRoom)
	}
	if f.socket < 0 {
		f.dialing = dial(f.host)
		return nil
	}
	if f.send() != nil {
		f.again()
	}
	return nil
}

// prepare makes the request for path.
func (f *httpFetcher) prepare(path string) error {
	host, where := f.address, path
	if strings.HasPrefix(path, ":") {
		slash := strings.IndexByte(path, '/')
		name, _, err := net.SplitHostPort(f.address)
		if slash < 0 || err != nil {
			return errHost
		}
		host, where = net.JoinHostPort(name, path[1:slash]), path[slash:]
	}
	if host != f.host {
		f.close()
	}
	f.path, f.host = path, host
	f.request = append(f.request[:0], "GET "+where+" HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: pointsman\r\n\r\n"...)
	return nil
}

// send writes the request. It is so short that a socket with nothing under way
// takes it whole.
func (f *httpFetcher) send() error {
	n, err := atOnce(syscall.SYS_WRITE, f.socket, f.request)
	if err == nil && n < len(f.request) {
		err = io.ErrShortWrite
	}
	return err
}

// again connects anew, for an engine that has closed the connection since its
// last answer.
func (f *httpFetcher) again() {
	f.close()
	f.dialing = dial(f.host)
}

// answer returns the page that was asked for, valid until the next call of ask,
// or errPending as long as it is not all there. Other answers than 200 are a
// statusError, or errStranger where there is nothing to see.
func (f *httpFetcher) answer() ([]byte, error) {
	if f.dialing != nil {
		select {
		case <-f.dialing.done:
		default:
			return nil, errPending
		}
		err := f.dialing.err
		f.socket, f.used, f.dialing = f.dialing.socket, false, nil
		if err == nil {
			err = f.send()
		}
		if err != nil {
			return nil, f.fail(err)
		}
	}
	if err := f.read(); err != nil {
		return nil, err
	}
	f.used = true
	if f.reply.last || f.n > f.reply.end {
		f.close()
	}
	switch f.reply.status {
	case 200:
		return f.in[f.reply.from:f.reply.to], nil
	case 404, 405, 501:
		return nil, errStranger
	default:
		return nil, statusError(f.reply.status)
	}
}

// read reads until the answer is complete, or no more of it has come.
func (f *httpFetcher) read() error {
	for {
		if f.n == len(f.in) {
			if f.n >= maxAnswer {
				return f.fail(errReply)
			}
			f.in = append(f.in, make([]byte, len(f.in))...)
		}
		room := f.in[f.n:min(len(f.in), f.n+mostAtOnce)]
		k, err := atOnce(syscall.SYS_READ, f.socket, room)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return errPending
		case (err != nil || k == 0) && f.n == 0 && f.used:
			f.again()
			return errPending
		case err != nil:
			return f.fail(err)
		}
		f.n += k
		done, err := f.reply.take(f.in[:f.n], k == 0)
		switch {
		case err != nil:
			return f.fail(err)
		case done:
			return nil
		case k < len(room):
			return errPending // to be told so by another read is not worth it
		}
	}
}

// fail gives the connection up because of err.
func (f *httpFetcher) fail(err error) error {
	f.close()
	return err
}

// close gives the connection up, and what was asked for.
func (f *httpFetcher) close() {
	if d := f.dialing; d != nil {
		d.stop()
		<-d.done
		f.socket, f.dialing = d.socket, nil
	}
	if f.socket >= 0 {
		syscall.Close(f.socket)
		f.socket = -1
	}
}

// dialing is a connection that is being made.
type dialing struct {
	stop   context.CancelFunc
	done   chan struct{} // closed when the others are set
	socket int           // -1 if there is an error
	err    error
}

// dial begins to connect to host.
func dial(host string) *dialing {
	ctx, stop := context.WithTimeout(context.Background(), timeout)
	d := &dialing{stop: stop, done: make(chan struct{}), socket: -1}
	go func() {
		defer close(d.done)
		defer stop()
		d.socket, d.err = connect(ctx, host)
	}()
	return d
}

// connect returns a socket, not blocking, that is connected to host.
func connect(ctx context.Context, host string) (socket int, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return -1, err
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	socket = -1
	if controlled := raw.Control(func(fd uintptr) {
		if socket, err = syscall.Dup(int(fd)); err == nil {
			syscall.CloseOnExec(socket)
		}
	}); controlled != nil {
		return -1, controlled
	}
	return socket, err
}

// atOnce reads or writes what a socket that does not block has or takes. Go's
// runtime is not told of the system call, as it returns at once: to be told
// costs a wake-up of its monitor, a third of what a scrape takes in all.
func atOnce(call uintptr, socket int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(call, uintptr(socket), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
