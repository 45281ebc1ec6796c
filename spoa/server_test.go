package spoa

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

func TestValues(t *testing.T) {
	long := strings.Repeat("0123456789", 7_000)
	check := func(m *Message, w *Reply) {
		for _, k := range []string{"i32", "u32", "i64", "u64", "min", "max", "text", "bin"} {
			if v, ok := m.Int(k); ok {
				w.SetInt(k, v)
			}
		}
		for _, k := range []string{"huge", "word", "none", "yes", "long9"} {
			if v, ok := m.Int(k); ok {
				t.Errorf("Int(%q) = %d", k, v)
			}
		}
		if v, ok := m.Bool("yes"); ok {
			w.SetBool("yes", v)
		}
		if v, ok := m.Bool("no"); ok {
			w.SetBool("no", v)
		}
		if _, ok := m.Bool("i64"); ok {
			t.Error("an integer is a bool")
		}
		for _, k := range []string{"i64", "yes", "none", "absent"} {
			if m.Bytes(k) != nil {
				t.Errorf("Bytes(%q) = %q", k, m.Bytes(k))
			}
		}
		w.SetString("long8", m.String("long8")) // outlives the handler
		w.SetInt("long9", int64(len(m.Bytes("long9"))))
		w.SetString("name", m.Name())
		w.SetString("word", m.String("word"))
	}
	r := start(t, "unix", &Server{Handler: check})
	c := r.connect(t, 1<<20)
	a, err := c.ask(1<<63, messageOf("m",
		arg{"i32", int32(-5)}, arg{"u32", uint32(math.MaxUint32)}, arg{"i64", int64(-6)},
		arg{"u64", uint64(7)}, arg{"huge", uint64(math.MaxUint64)}, arg{"min", int64(math.MinInt64)},
		arg{"max", int64(math.MaxInt64)}, arg{"text", "-12"}, arg{"bin", []byte("34")}, arg{"word", "x1"},
		arg{"none", nil}, arg{"yes", true}, arg{"no", false}, arg{"yes", false},
		arg{"long8", long}, arg{"ip4", raw{6, 1, 2, 3, 4}}, arg{"ip6", append(raw{7}, make([]byte, 16)...)},
		arg{"long9", []byte(long)},
	))
	must(t, err)
	want := map[string]any{
		"i32": "-5", "u32": int64(math.MaxUint32), "i64": "-6", "u64": int64(7),
		"min": "-9223372036854775808", "max": "9223372036854775807", "text": "-12", "bin": int64(34),
		"yes": true, "no": false, "long8": long, "long9": int64(len(long)), "name": "m", "word": "x1",
	}
	for k, v := range want {
		if a.vars[k] != v {
			t.Errorf("%s = %.40v, want %.40v", k, a.vars[k], v)
		}
	}
	if len(a.vars) != len(want) {
		t.Errorf("%d variables, want %d: %.200v", len(a.vars), len(want), a.vars)
	}
}

func TestIntegersOut(t *testing.T) {
	cases := []struct {
		v    int64
		want any
	}{
		{0, int64(0)}, {239, int64(239)}, {240, int64(240)}, {1 << 32, int64(1 << 32)},
		{1<<53 - 1, int64(1<<53 - 1)}, {1 << 53, int64(1 << 53)}, {1<<53 + 1, "9007199254740993"},
		{1 << 54, "18014398509481984"}, {math.MaxInt64, "9223372036854775807"},
		{-1, "-1"}, {math.MinInt64, "-9223372036854775808"},
	}
	r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
		for i, tc := range cases {
			w.SetInt(fmt.Sprint(i), tc.v)
		}
	}})
	a, err := r.connect(t, 16380).ask(1, messageOf("m"))
	must(t, err)
	for i, tc := range cases {
		if got := a.vars[fmt.Sprint(i)]; got != tc.want {
			t.Errorf("%d arrives as %T %v", tc.v, got, got)
		}
	}
}

func TestAnswerFitsFrame(t *testing.T) {
	r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
		n, _ := m.Int("n")
		w.SetString("big", strings.Repeat("x", int(n)))
		for i := range 100 {
			w.SetInt(fmt.Sprintf("v%d", i), 1<<53)
		}
	}})
	for _, limit := range []int{256, 1000, 16380} {
		c := r.connect(t, limit)
		for n := limit - 100; n <= limit+1; n++ {
			a, err := c.ask(math.MaxUint64, messageOf("m", arg{"n", int64(n)}))
			must(t, err)
			if a.size > limit {
				t.Fatalf("ACK of %d bytes, limit %d", a.size, limit)
			}
			if n == limit-100 && a.vars["big"] == nil {
				t.Errorf("limit %d: a value of %d bytes was dropped", limit, n)
			}
		}
	}
	if r.Stats().Dropped == 0 {
		t.Error("nothing counted as dropped")
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
	sizes := []int{0, 1, 100, liftMin - 1, liftMin, inSize - 40, inSize, inSize + 1, 20_000, 131_072, 1 << 20}
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

// An answer that is kept back is sent when it is ready, from wherever, and the
// memory of its message is given back before.
func TestLater(t *testing.T) {
	for _, size := range []int{100, liftMin, inSize / 2, 20_000} {
		for _, early := range []bool{false, true} {
			var sent sync.WaitGroup
			r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
				n := len(m.Bytes("body"))
				l := m.Later()
				send := func() { l.Send(func(w *Reply) { w.SetInt("n", int64(n)) }) }
				if early {
					sent.Go(send) // perhaps before the Handler returns
					return
				}
				k := m.call
				sent.Go(func() {
					eventually(t, "the memory is given back", func() bool {
						k.mu.Lock()
						defer k.mu.Unlock()
						return k.frame == nil && k.held == nil
					})
					send()
				})
			}})
			c := r.connect(t, 1<<20)
			for i := range 40 { // more than there are places
				a, err := c.ask(uint64(i+1), append(messageOf("m", arg{"body", body(i, size)}), messageOf("m", arg{"body", body(i, size)})...))
				if err != nil || a.vars["n"] != int64(size) {
					t.Fatalf("%d bytes: %v, %v", size, a.vars, err)
				}
			}
			sent.Wait()
		}
	}
}

// Messages of one frame share their answer, also when some are answered at once
// and others later.
func TestLaterAndAtOnce(t *testing.T) {
	r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
		if m.Name() == "later" {
			l := m.Later()
			go l.Send(func(w *Reply) { w.SetInt("later", 1) })
			return
		}
		for i := range 50 {
			w.SetInt(fmt.Sprint("n", i), int64(i))
		}
	}})
	c := r.connect(t, 1<<20)
	for i := range uint64(200) {
		a, err := c.ask(i, append(append(messageOf("later"), messageOf("now")...), messageOf("later")...))
		if err != nil || len(a.vars) != 51 {
			t.Fatalf("frame %d: %d variables, %v", i, len(a.vars), err)
		}
	}
}

// A peer that leaves, or reads nothing, while its answers are kept back ends its
// own connection and nothing else.
func TestLaterWithoutAPeer(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		var mu sync.Mutex
		var kept []Later
		s := &Server{WriteTimeout: time.Second, Handler: func(m *Message, w *Reply) {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, m.Later())
		}}
		r := start(t, "unix", s)
		gone, other := r.connect(t, 1<<20), r.connect(t, 1<<20)
		for _, c := range []*client{gone, other} {
			for i := range uint64(maxInFlight) {
				_, err := c.Write(notifyOf(i, 1, messageOf("m", arg{"body", body(1, 3_000)})))
				must(t, err)
			}
		}
		eventually(t, "all frames are taken", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(kept) == 2*maxInFlight
		})
		if leaves {
			gone.Close()
		}
		long := strings.Repeat("x", 100_000) // more than a socket holds, together
		var sent sync.WaitGroup
		for _, l := range kept {
			sent.Go(func() { l.Send(func(w *Reply) { w.SetString("long", long) }) })
		}
		for i := range maxInFlight {
			if a, err := other.read(); err != nil || a.vars["long"] != long {
				t.Fatalf("answer %d: %v", i, err)
			}
		}
		sent.Wait()
		eventually(t, "one connection is left", func() bool { return r.Stats().Open == 1 })
		if n := r.Stats().Panics; n != 0 {
			t.Errorf("%d panics", n)
		}
	}
}

// A panic answers a frame without variables, whatever is kept back.
func TestLaterPanics(t *testing.T) {
	var l Later
	r := start(t, "unix", &Server{Log: slog.New(slog.DiscardHandler), Handler: func(m *Message, w *Reply) {
		later := m.Later()
		if m.Name() == "handler" {
			l = later
			panic("handler")
		}
		go later.Send(func(w *Reply) {
			w.SetInt("n", 1)
			panic("answer")
		})
	}})
	c := r.connect(t, 1<<20)
	for i, name := range []string{"handler", "answer", "handler", "answer"} {
		a, err := c.ask(uint64(i+1), messageOf(name))
		if err != nil || len(a.vars) != 0 {
			t.Fatalf("%s: %v, %v", name, a.vars, err)
		}
		if name == "handler" {
			l.Send(func(w *Reply) { t.Error("it is answered twice") })
		}
	}
	if n := r.Stats().Panics; n != 4 {
		t.Errorf("%d panics", n)
	}
}
