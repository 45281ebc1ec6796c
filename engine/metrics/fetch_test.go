package metrics

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// get requests a page and waits for it.
func get(f *rawFetcher, path string) (string, error) {
	if err := f.send(path); err != nil {
		return "", err
	}
	for range 60_000 {
		page, err := f.poll()
		if err != errPending {
			return string(page), err
		}
		time.Sleep(time.Millisecond)
	}
	f.close()
	return "", errTimeout
}

// accepting runs a server that calls f with each connection and its number.
func accepting(t *testing.T, f func(n int, c net.Conn)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(n, c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func TestFetchesFromAServer(t *testing.T) {
	large := strings.Repeat("a line of a large page\n", 20_000)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int32
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/small":
				fmt.Fprint(w, "small for ", r.UserAgent(), " at ", r.Host)
			case "/large": // in chunks
				fmt.Fprint(w, large)
			case "/slow":
				for range 3 {
					fmt.Fprint(w, "slow ")
					w.(http.Flusher).Flush()
					time.Sleep(10 * time.Millisecond)
				}
			case "/last":
				w.Header().Set("Connection", "close")
				fmt.Fprint(w, "last")
			case "/broken":
				w.WriteHeader(500)
			default:
				w.WriteHeader(404)
			}
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				connections.Add(1)
			}
		},
	}
	go server.Serve(l)
	defer server.Close()
	f := newRawFetcher(l.Addr().String())
	defer f.close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for i, c := range []struct {
		path, want  string
		err         error
		connections int32 // so far
	}{
		{"/small", "small for pointsman at " + l.Addr().String(), nil, 1},
		{"/large", large, nil, 1},
		{"/slow", "slow slow slow ", nil, 1},
		{"/none", "", errUnknown, 1},
		{"/broken", "", statusError(500), 1},
		{"/last", "last", nil, 1},
		{"/large", large, nil, 2},
		{":" + port + "/last", "last", nil, 2},
		{":1/small", "", nil, 2}, // nobody is there
		{":x", "", errAddress, 2},
		{"/small", "small for pointsman at " + l.Addr().String(), nil, 3},
	} {
		page, err := get(f, c.path)
		if c.path == ":1/small" && err != nil {
			err = nil
		}
		if page != c.want || err != c.err || connections.Load() != c.connections {
			t.Errorf("%d: %s: %.60q %v, %d connections", i, c.path, page, err, connections.Load())
		}
	}
}

// When an engine has closed the connection since the last answer, the request is sent
// again over a new one, but only once.
func TestReconnects(t *testing.T) {
	address := accepting(t, func(n int, c net.Conn) {
		r := bufio.NewReader(c)
		for i := 0; i == 0 || n == 1 && i < 2; i++ {
			if _, err := http.ReadRequest(r); err != nil || n > 1 {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", n)
		}
	})
	f := newRawFetcher(address)
	defer f.close()
	for i, want := range []string{"0", "1", "1"} {
		if page, err := get(f, "/"); page != want || err != nil {
			t.Fatalf("%d: %q %v, want %s", i, page, err, want)
		}
		time.Sleep(20 * time.Millisecond) // most likely the server has closed the connection by then
	}
	if page, err := get(f, "/"); err == nil {
		t.Errorf("%q from a server that closes every connection", page)
	}
}

// An engine has left when it closes the connection, and nobody answers over the next one.
// One that answers there has not.
func TestSeesThatAnEngineHasLeft(t *testing.T) {
	for name, last := range map[string]string{"without a word": "", "saying so": "Connection: close\r\n"} {
		left := make(chan struct{})
		address := accepting(t, func(n int, c net.Conn) {
			if n == 2 {
				<-left
				return
			}
			r := bufio.NewReader(c)
			for _, header := range []string{"", last} {
				_, _ = http.ReadRequest(r)
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Length: 1\r\n\r\nx", header)
			}
		})
		f := newRawFetcher(address)
		for range 4 {
			if _, err := get(f, "/"); err != nil || f.lost() {
				t.Fatal(name, err, f.lost())
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err := f.send("/"); err != nil {
			t.Fatal(err)
		}
		for i := 0; !f.lost(); i++ {
			if _, err := f.poll(); err != errPending || i > 10_000 {
				t.Fatalf("%s: nobody answers, and the engine has not left: %v", name, err)
			}
			time.Sleep(time.Millisecond)
		}
		close(left)
		f.close()
	}
}

// One that closes each connection after its answer has not left.
func TestAnEngineThatClosesHasNotLeft(t *testing.T) {
	wait := make(chan struct{})
	address := accepting(t, func(n int, c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		if n > 1 {
			<-wait
		}
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")
	})
	f := newRawFetcher(address)
	defer f.close()
	for range 2 {
		if _, err := get(f, "/"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.send("/"); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := f.poll(); err != errPending || f.lost() {
			t.Fatal(err, f.lost())
		}
		time.Sleep(time.Millisecond)
	}
	close(wait)
}

// A request can be given up at any time.
func TestCancelsAFetch(t *testing.T) {
	hang := make(chan struct{})
	address := accepting(t, func(n int, c net.Conn) {
		if n == 0 {
			<-hang
		}
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil && n > 0 {
			fmt.Fprint(c, "HTTP/1.0 200 OK\r\n\r\npage")
		}
	})
	f := newRawFetcher(address)
	if err := f.send("/"); err != nil {
		t.Fatal(err)
	}
	for f.dialed != nil {
		if _, err := f.poll(); !errors.Is(err, errPending) {
			t.Fatal(err)
		}
	}
	f.close()
	close(hang)
	if page, err := get(f, "/"); page != "page" || err != nil {
		t.Errorf("%q %v", page, err)
	}
	if err := f.send("/"); err != nil {
		t.Fatal(err)
	}
	f.close() // while it connects
	f.close()
}

// hostile are servers that answer a request with something malformed or endless.
var hostile = map[string]func(c *net.TCPConn){
	"nothing":     func(c *net.TCPConn) {},
	"half closed": func(c *net.TCPConn) { c.CloseWrite(); io.Copy(io.Discard, c) },
	"half an answer": func(c *net.TCPConn) {
		fmt.Fprint(c, ok, "Content-Length: 10\r\n\r\nhalf")
		c.CloseWrite()
		io.Copy(io.Discard, c)
	},
	"reset":            func(c *net.TCPConn) { fmt.Fprint(c, ok, "Content-Length: 10\r\n\r\nhalf"); c.SetLinger(0) },
	"endless head":     func(c *net.TCPConn) { forEver(c, ok, "X: y\r\n") },
	"endless line":     func(c *net.TCPConn) { forEver(c, ok, "x") },
	"endless interim":  func(c *net.TCPConn) { forEver(c, "", "HTTP/1.1 100 Continue\r\n\r\n") },
	"endless body":     func(c *net.TCPConn) { forEver(c, ok+"\r\n", "# a line\n") },
	"endless chunks":   func(c *net.TCPConn) { forEver(c, chunked, "10000\r\n"+strings.Repeat("x", 1<<16)+"\r\n") },
	"tiny chunks":      func(c *net.TCPConn) { forEver(c, chunked, "1\r\nx\r\n") },
	"endless size":     func(c *net.TCPConn) { forEver(c, chunked, "0") },
	"endless trailer":  func(c *net.TCPConn) { forEver(c, chunked+"0\r\n", "x: y\r\n") },
	"too long":         func(c *net.TCPConn) { fmt.Fprint(c, ok, "Content-Length: 999999999\r\n\r\n") },
	"another protocol": func(c *net.TCPConn) { forEver(c, "", "\x16\x03\x01\x00\r\n\r\n") },
}

const (
	ok      = "HTTP/1.1 200 OK\r\n"
	chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
)

// forEver writes first, and then more again and again until that fails.
func forEver(c net.Conn, first, more string) {
	more = strings.Repeat(more, 1+1<<14/len(more))
	for _, err := io.WriteString(c, first); err == nil; {
		_, err = io.WriteString(c, more)
	}
}

// Whatever a server sends, the request fails in bounded memory, the next one succeeds,
// and no descriptor is left.
func TestSurvivesHostilePeers(t *testing.T) {
	for name, worst := range hostile {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t)
			address := accepting(t, func(n int, c net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					return
				}
				if n == 0 {
					worst(c.(*net.TCPConn))
				} else {
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage")
				}
			})
			f := newRawFetcher(address)
			if page, err := get(f, "/"); err == nil || err == errTimeout {
				t.Errorf("%.60q, %v", page, err)
			}
			if len(f.in) > maxAnswer {
				t.Errorf("the buffer has %d bytes", len(f.in))
			}
			if page, err := get(f, "/"); page != "page" || err != nil {
				t.Errorf("the next answer: %q, %v", page, err)
			}
			if len(f.in) > keptBuffer {
				t.Errorf("the buffer keeps %d bytes", len(f.in))
			}
			f.close()
			until(t, "the descriptors to be closed", func() bool { return descriptors(t) <= before+1 }) // plus the listener
		})
	}
}

// descriptors is the number of open descriptors of this process.
func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// An address may be a name or an IP address of either family.
func TestFetchesByAnyAddress(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Log("not here:", err)
			continue
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })}
		go server.Serve(l)
		_, port, _ := net.SplitHostPort(l.Addr().String())
		address := net.JoinHostPort(host, port)
		f := newRawFetcher(net.JoinHostPort(host, "1"))
		if page, err := get(f, ":"+port+"/metrics"); page != address || err != nil {
			t.Errorf("%s: %q, %v", address, page, err)
		}
		f.close()
		server.Close()
	}
}

// Dialling a server that never accepts blocks nothing, and can be given up.
func TestCancelsADial(t *testing.T) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(socket)
	if err := errors.Join(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(socket, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprint("127.0.0.1:", name.(*syscall.SockaddrInet4).Port)
	var waiting []net.Conn
	for { // until the queue of those to be accepted is full
		c, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			break
		}
		waiting = append(waiting, c)
	}
	before := descriptors(t)
	f := newRawFetcher(address)
	for range 20 {
		if err := f.send("/"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.poll(); err != errPending {
			t.Fatal(err)
		}
		f.close()
	}
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors are left", n-before)
	}
	for _, c := range waiting {
		c.Close()
	}
}
