package spoa

import (
	"net"
	"sync/atomic"
	"testing"
)

// TestBlock: frames before and after one whose handler waits are answered meanwhile,
// though all of them came at once.
func TestBlock(t *testing.T) {
	gate := make(chan struct{})
	r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
		if m.Name() == "slow" {
			m.Block()
			m.Block() // once more has no effect
			<-gate
		}
		echo(m, w)
	}})
	c := r.connect(t, 16380)
	var all []byte
	for i, name := range []string{"fast", "slow", "fast", "slow", "fast"} {
		all = append(all, notifyOf(uint64(i), 1, messageOf(name, arg{"body", body(i, 100)}))...)
	}
	_, err := c.Write(all)
	must(t, err)
	for _, want := range []uint64{0, 2, 4} {
		a, err := c.read()
		must(t, err)
		if a.stream != want {
			t.Errorf("answer to %d, want %d", a.stream, want)
		}
	}
	close(gate)
	for range 2 {
		a, err := c.read()
		must(t, err)
		if a.vars["got"] != sum(body(int(a.stream), 100)) {
			t.Errorf("got %+v", a)
		}
	}
}

// countingListener counts the writes to its connections.
type countingListener struct {
	net.Listener
	writes *atomic.Int64
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countingConn{c, l.writes}, err
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// TestAcksAreWrittenTogether: frames that came together are answered together.
func TestAcksAreWrittenTogether(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var writes atomic.Int64
	s := &Server{Handler: echo}
	go s.Serve(countingListener{l, &writes})
	defer l.Close()
	r := &rig{Server: s, addr: l.Addr()}
	c := r.connect(t, 16380)
	before := writes.Load()
	const n = 20
	var all []byte
	for i := range n {
		all = append(all, notifyOf(uint64(i), 1, messageOf("m", arg{"body", body(i, 50)}))...)
	}
	_, err = c.Write(all)
	must(t, err)
	for range n {
		_, err := c.read()
		must(t, err)
	}
	// The network may divide what was sent at once, but not into every frame.
	if got := writes.Load() - before; got > n/2 {
		t.Errorf("%d writes for %d frames", got, n)
	}
}
