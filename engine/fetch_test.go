package engine

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// get waits for a page.
func get(f *httpFetcher, path string) (string, error) {
	if err := f.ask(path); err != nil {
		return "", err
	}
	for range 5000 {
		page, err := f.answer()
		if err != errPending {
			return string(page), err
		}
		time.Sleep(time.Millisecond)
	}
	f.close()
	return "", errTimeout
}

// accepting calls f with each connection to a server, and the number of it.
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
	f := newHTTPFetcher(l.Addr().String())
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
		{"/none", "", errStranger, 1},
		{"/broken", "", statusError(500), 1},
		{"/last", "last", nil, 1},
		{"/large", large, nil, 2},
		{":" + port + "/last", "last", nil, 2},
		{":1/small", "", nil, 2}, // nobody is there
		{":x", "", errHost, 2},
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

// An engine that has closed the connection in the meantime is asked over a new
// one, but only once.
func TestFetchesOverANewConnection(t *testing.T) {
	address := accepting(t, func(n int, c net.Conn) {
		r := bufio.NewReader(c)
		for i := 0; i == 0 || n == 1 && i < 2; i++ {
			if _, err := http.ReadRequest(r); err != nil || n > 1 {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", n)
		}
	})
	f := newHTTPFetcher(address)
	defer f.close()
	for i, want := range []string{"0", "1", "1"} {
		if page, err := get(f, "/"); page != want || err != nil {
			t.Fatalf("%d: %q %v, want %s", i, page, err, want)
		}
		time.Sleep(20 * time.Millisecond) // for the connection to be closed
	}
	if page, err := get(f, "/"); err == nil {
		t.Errorf("%q of one that closes every connection", page)
	}
}

// What was asked for can be given up at any time.
func TestGivesUpAFetch(t *testing.T) {
	hang := make(chan struct{})
	address := accepting(t, func(n int, c net.Conn) {
		if n == 0 {
			<-hang
		}
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil && n > 0 {
			fmt.Fprint(c, "HTTP/1.0 200 OK\r\n\r\npage")
		}
	})
	f := newHTTPFetcher(address)
	if err := f.ask("/"); err != nil {
		t.Fatal(err)
	}
	for f.dialing != nil {
		if _, err := f.answer(); !errors.Is(err, errPending) {
			t.Fatal(err)
		}
	}
	f.close()
	close(hang)
	if page, err := get(f, "/"); page != "page" || err != nil {
		t.Errorf("%q %v", page, err)
	}
	if err := f.ask("/"); err != nil {
		t.Fatal(err)
	}
	f.close() // while it connects
	f.close()
}
