package spoa

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo sets "got" to the sum of what it sees of argument "body".
func echo(m *Message, w *Reply) { w.SetInt("got", sum(m.Bytes("body"))) }

func sum(b []byte) int64 {
	n := int64(len(b))
	for i, c := range b {
		n += int64(i+1) * int64(c)
	}
	return n & (1<<48 - 1)
}

func body(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed*31 + i*7)
	}
	return b
}

func TestHello(t *testing.T) {
	r := start(t, "unix", &Server{Handler: echo, MaxFrame: 100_000})
	c := r.dial(t)
	a, err := c.greet(16380)
	must(t, err)
	if a.vars["version"] != "2.0" || a.vars["capabilities"] != "pipelining" || a.vars["max-frame-size"] != int64(16380) {
		t.Errorf("answer %v", a.vars)
	}
	_, err = c.Write(disconnectFrame)
	must(t, err)
	a, err = c.read()
	must(t, err)
	if a.kind != 102 || a.vars["status-code"] != int64(0) {
		t.Errorf("answer to DISCONNECT: %+v", a)
	}
	if _, err := c.read(); err != io.EOF {
		t.Errorf("after DISCONNECT: %v", err)
	}

	a, err = r.dial(t).greet(1 << 30)
	must(t, err)
	if a.vars["max-frame-size"] != int64(100_000) {
		t.Errorf("a larger frame was not negotiated down: %v", a.vars)
	}
}

func TestHealthcheck(t *testing.T) {
	r := start(t, "tcp", &Server{Handler: echo})
	c := r.dial(t)
	_, err := c.Write(helloOf(16380, arg{"healthcheck", true}))
	must(t, err)
	if a, err := c.read(); err != nil || a.kind != 101 {
		t.Errorf("answer %+v, %v", a, err)
	}
	if _, err := c.read(); err != io.EOF {
		t.Errorf("the connection stays open after a health check: %v", err)
	}
}

func TestSeveralMessagesInOneFrame(t *testing.T) {
	r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
		w.SetInt(m.Name(), sum(m.Bytes("body")))
	}})
	c := r.connect(t, 1<<20)
	big1, small, big2 := body(1, 20_000), body(2, 30), body(3, 50_000)
	_, err := c.Write(notifyOf(7, 9, messageOf("a", arg{"x", nil}, arg{"body", big1}), messageOf("b", arg{"body", small}),
		messageOf("c", arg{"body", nil}), messageOf("d", arg{"body", string(big2)})))
	must(t, err)
	a, err := c.read()
	must(t, err)
	want := map[string]any{"a": sum(big1), "b": sum(small), "c": int64(0), "d": sum(big2)}
	if fmt.Sprint(a.vars) != fmt.Sprint(want) || a.stream != 7 || a.id != 9 {
		t.Errorf("got %+v, want %v", a, want)
	}
	if s := r.Stats(); s.Messages != 4 || s.Frames != 2 {
		t.Errorf("%+v", s)
	}
}

// TestPipelined sends frames of all sizes at once, some under the same name,
// over several connections and both kinds of socket.
func TestPipelined(t *testing.T) {
	sizes := []int{0, 1, 100, copyBelow - 1, copyBelow, inSize - 40, inSize, inSize + 1, 20_000, 131_072, 1 << 20}
	for _, network := range []string{"unix", "tcp"} {
		r := start(t, network, &Server{Handler: echo})
		var wg sync.WaitGroup
		for k := range 3 {
			c := r.connect(t, 4<<20)
			const n = 200
			wg.Go(func() {
				for i := range n {
					if _, err := c.Write(notifyOf(uint64(i/2), 1, messageOf("m", arg{"n", int64(i)}, arg{"body", body(i+k, sizes[i%len(sizes)])}))); err != nil {
						t.Error(err)
						return
					}
				}
			})
			wg.Go(func() {
				want := map[string]int{}
				for i := range n {
					want[fmt.Sprint(i/2, sum(body(i+k, sizes[i%len(sizes)])))]++
				}
				for range n {
					a, err := c.read()
					if err != nil {
						t.Error(err)
						return
					}
					want[fmt.Sprint(a.stream, a.vars["got"])]--
				}
				for key, left := range want {
					if left != 0 {
						t.Errorf("%s: %s: %d missing", network, key, left)
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestPanicInHandler(t *testing.T) {
	var out syncBuffer
	r := start(t, "unix", &Server{Log: slog.New(slog.NewTextHandler(&out, nil)), Handler: func(m *Message, w *Reply) {
		w.SetInt("half", 1)
		if m.Name() == "bad" {
			panic("ouch")
		}
	}})
	c := r.connect(t, 16380)
	for i := range uint64(50) {
		a, err := c.ask(i, messageOf("bad", arg{"body", body(1, 9000)}))
		must(t, err)
		if len(a.vars) != 0 {
			t.Fatalf("the ACK after a panic carries %v", a.vars)
		}
		a, err = c.ask(i, messageOf("good"))
		must(t, err)
		if a.vars["half"] != int64(1) {
			t.Fatalf("the connection does not go on: %v", a.vars)
		}
	}
	if s := r.Stats(); s.Panics != 50 || s.Messages != 100 {
		t.Errorf("%+v", s)
	}
	if log := out.String(); !strings.Contains(log, "ouch") || !strings.Contains(log, "server_test.go") || strings.Count(log, "\n") > 10 {
		t.Errorf("log:\n%s", log)
	}
}

func TestMaxConns(t *testing.T) {
	r := start(t, "tcp", &Server{Handler: echo, MaxConns: 2})
	a := r.connect(t, 16380)
	r.connect(t, 16380)
	if _, err := r.dial(t).greet(16380); err == nil {
		t.Error("a third connection is served")
	}
	if s := r.Stats(); s.Refused != 1 || s.Open != 2 || s.Accepted != 2 {
		t.Errorf("%+v", s)
	}
	a.Close()
	eventually(t, "a place is free again", func() bool { return r.Stats().Open == 1 })
	r.connect(t, 16380)
	r.SetMaxConns(3)
	r.connect(t, 16380)
	if s := r.Stats(); s.Refused != 1 || s.Open != 3 {
		t.Errorf("%+v", s)
	}
}

// TestBackpressure holds every handler: the server stops reading, loses
// nothing and goes on when they return.
func TestBackpressure(t *testing.T) {
	gate := make(chan struct{})
	var running, most atomic.Int64
	r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
		most.Store(max(most.Load(), running.Add(1)))
		m.Block()
		<-gate
		running.Add(-1)
		echo(m, w)
	}})
	c := r.connect(t, 1<<20)
	const n = 3 * maxInFlight
	go func() {
		for i := range n {
			c.Write(notifyOf(uint64(i), 1, messageOf("m", arg{"body", body(i, 100)})))
		}
	}()
	eventually(t, "all places are taken", func() bool { return running.Load() == maxInFlight })
	close(gate)
	for range n {
		a, err := c.read()
		must(t, err)
		if a.vars["got"] != sum(body(int(a.stream), 100)) {
			t.Fatalf("stream %d: %v", a.stream, a.vars)
		}
	}
	if most.Load() > maxInFlight {
		t.Errorf("%d handlers at once", most.Load())
	}
}

func TestSeveralListeners(t *testing.T) {
	s := &Server{Handler: echo}
	a, b := start(t, "unix", s), start(t, "tcp", s)
	for _, r := range []*rig{a, b} {
		_, err := r.connect(t, 16380).ask(1, messageOf("m"))
		must(t, err)
	}
	if n := s.Stats().Open; n != 2 {
		t.Errorf("%d connections", n)
	}
	must(t, s.Shutdown(context.Background()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	if err := s.Serve(l); err != ErrServerClosed {
		t.Errorf("Serve after Shutdown: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is left open: %v", err)
	}
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
