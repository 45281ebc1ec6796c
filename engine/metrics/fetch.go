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
	// maxPage bounds a page in bytes, maxAnswer the whole HTTP answer.
	maxPage   = 16 << 20
	maxAnswer = 2 * maxPage
	// The size of the buffer in bytes: at first, and at most between two requests.
	initialBuffer = 16 << 10
	keptBuffer    = 1 << 20
	// maxRead bounds one read in bytes, which takes about 50 µs.
	maxRead = 256 << 10
)

var (
	// errAddress means that a replica's address has no port.
	errAddress = errors.New("the replica's address is not host:port")
	// errPending means that the answer has not arrived yet.
	errPending = errors.New("no answer yet")
)

// rawFetcher is an HTTP client for one engine over one persistent connection, which
// never blocks: it dials in a goroutine, and then reads and writes only what the
// kernel has or takes. One goroutine can use any number of them without one engine
// delaying another. It is not safe for concurrent use.
//
// The runtime does not know the socket: its poller would wake up for each answer,
// which costs about as much as reading it. docs/decisions/0006-raw-scrape-client.md
// has the figures.
type rawFetcher struct {
	address string // of the replica
	path    string // of request
	host    string // host:port of request
	request []byte

	dialed *dial  // nil = not dialling
	socket int    // -1 = none
	reused bool   // an answer has arrived over the socket
	closed bool   // the engine closed the socket of its last answer
	bye    bool   // its last answer said that it would, and those before had not
	in     []byte // in[:n] is the answer so far
	n      int
	reply  reply
}

func newRawFetcher(address string) *rawFetcher {
	return &rawFetcher{address: address, socket: -1, in: make([]byte, initialBuffer)}
}

// send requests the page at path, which may begin with a port. The request before
// must have been answered or have failed.
func (f *rawFetcher) send(path string) error {
	if path != f.path {
		if err := f.prepare(path); err != nil {
			return err
		}
	}
	f.n, f.reply, f.closed, f.bye = 0, reply{}, f.bye, false
	if len(f.in) > keptBuffer {
		f.in = make([]byte, initialBuffer)
	}
	if f.socket < 0 {
		f.dialed = startDial(f.host)
		return nil
	}
	if f.write() != nil {
		f.redial()
	}
	return nil
}

// prepare builds the request for path.
func (f *rawFetcher) prepare(path string) error {
	host, where := f.address, path
	if strings.HasPrefix(path, ":") {
		slash := strings.IndexByte(path, '/')
		name, _, err := net.SplitHostPort(f.address)
		if slash < 0 || err != nil {
			return errAddress
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

// write writes the request. It is short: an idle socket takes all of it.
func (f *rawFetcher) write() error {
	n, err := rawCall(syscall.SYS_WRITE, f.socket, f.request)
	if err == nil && n < len(f.request) {
		err = io.ErrShortWrite
	}
	return err
}

// redial connects again to an engine that has closed the connection since its last answer.
func (f *rawFetcher) redial() {
	f.close()
	f.closed = true
	f.dialed = startDial(f.host)
}

// lost reports whether the engine has closed the connection since its last answer, and
// not answered over the next one.
func (f *rawFetcher) lost() bool { return f.closed && f.n == 0 }

// poll returns the requested page, valid until the next call of send, or errPending
// until it is complete. A status that means there is no such page is errUnknown, any
// other than 200 a statusError.
func (f *rawFetcher) poll() ([]byte, error) {
	if f.dialed != nil {
		select {
		case <-f.dialed.done:
		default:
			return nil, errPending
		}
		err := f.dialed.err
		f.socket, f.reused, f.dialed = f.dialed.socket, false, nil
		if err == nil {
			err = f.write()
		}
		if err != nil {
			return nil, f.fail(err)
		}
	}
	if err := f.read(); err != nil {
		return nil, err
	}
	f.bye, f.reused = f.reused && f.reply.closes, true
	if f.reply.closes || f.n > f.reply.end {
		f.close()
	}
	switch f.reply.status {
	case 200:
		return f.in[f.reply.from:f.reply.to], nil
	case 404, 405, 501:
		return nil, errUnknown
	default:
		return nil, statusError(f.reply.status)
	}
}

// read reads until the answer is complete or the socket has no more of it.
func (f *rawFetcher) read() error {
	for {
		if f.n == len(f.in) {
			if f.n >= maxAnswer {
				return f.fail(errReply)
			}
			f.in = append(f.in, make([]byte, len(f.in))...)
		}
		free := f.in[f.n:min(len(f.in), f.n+maxRead)]
		k, err := rawCall(syscall.SYS_READ, f.socket, free)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return errPending
		case (err != nil || k == 0) && f.n == 0 && f.reused:
			f.redial()
			return errPending
		case err != nil:
			return f.fail(err)
		}
		f.n += k
		done, err := f.reply.parse(f.in[:f.n], k == 0)
		switch {
		case err != nil:
			return f.fail(err)
		case done:
			return nil
		case k < len(free):
			return errPending // another read would only confirm it
		}
	}
}

// fail closes the connection and returns err.
func (f *rawFetcher) fail(err error) error {
	f.close()
	return err
}

// close closes the connection and gives up the request.
func (f *rawFetcher) close() {
	if d := f.dialed; d != nil {
		d.stop()
		<-d.done
		f.socket, f.dialed = d.socket, nil
	}
	if f.socket >= 0 {
		syscall.Close(f.socket)
		f.socket = -1
	}
}

// dial is a connection that is being made.
type dial struct {
	stop   context.CancelFunc
	done   chan struct{} // closed once socket and err are set
	socket int           // -1 after an error
	err    error
}

// startDial starts to connect to host.
func startDial(host string) *dial {
	ctx, stop := context.WithTimeout(context.Background(), timeout)
	d := &dial{stop: stop, done: make(chan struct{}), socket: -1}
	go func() {
		defer close(d.done)
		defer stop()
		d.socket, d.err = connect(ctx, host)
	}()
	return d
}

// connect returns a non-blocking socket that is connected to host.
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

// rawCall reads from or writes to a non-blocking socket. It does not announce the
// system call to the runtime, as the call returns at once: the announcement would
// wake up the runtime's monitor, which costs a third of a scrape.
func rawCall(call uintptr, socket int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(call, uintptr(socket), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
