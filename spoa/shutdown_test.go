package spoa

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestShutdownUnderLoad: everything sent before Shutdown gets its ACK, then the
// connection gets a goodbye and is closed, whatever the socket.
func TestShutdownUnderLoad(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			for round := range 10 {
				gate := make(chan struct{})
				var held atomic.Int64
				r := start(t, network, &Server{Handler: func(m *Message, w *Reply) {
					if _, hold := m.Int("hold"); hold {
						held.Add(1)
						m.Block()
						<-gate
					}
					echo(m, w)
				}})
				const conns, n = 4, 50
				var wg sync.WaitGroup
				var sent sync.WaitGroup
				for range conns {
					c := r.connect(t, 1<<20)
					sent.Add(1)
					wg.Go(func() {
						for i := range n {
							m := messageOf("m", arg{"body", body(i, 100+600*i)})
							if i%10 == 0 {
								m = messageOf("m", arg{"body", body(i, 100+600*i)}, arg{"hold", int64(1)})
							}
							if _, err := c.Write(notifyOf(uint64(i), 1, m)); err != nil {
								t.Error(err)
							}
						}
						sent.Done()
					})
					wg.Go(func() {
						got := map[uint64]bool{}
						for {
							a, err := c.read()
							if err != nil {
								t.Errorf("after %d ACKs: %v", len(got), err)
								return
							}
							if a.kind == 102 {
								if a.vars["status-code"] != int64(0) {
									t.Errorf("goodbye %v", a.vars)
								}
								break
							}
							if a.vars["got"] != sum(body(int(a.stream), 100+600*int(a.stream))) {
								t.Errorf("stream %d: %v", a.stream, a.vars)
							}
							got[a.stream] = true
						}
						if len(got) != n {
							t.Errorf("%d of %d messages have an ACK", len(got), n)
						}
						c.Close()
					})
				}
				sent.Wait()
				down := make(chan error)
				go func() { down <- r.Shutdown(context.Background()) }()
				eventually(t, "no new connections", r.isClosing)
				if round%2 == 0 { // else the handlers are let go at once
					eventually(t, "all that holds is held", func() bool { return held.Load() == conns*n/10 })
				}
				close(gate)
				must(t, <-down)
				wg.Wait()
				if s := r.Stats(); s.Open != 0 || s.Messages != conns*n || s.Malformed != 0 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// TestShutdownCutsOffEndlessTraffic: a peer that never pauses is cut off
// between two frames, and what was read is answered.
func TestShutdownCutsOffEndlessTraffic(t *testing.T) {
	r := start(t, "unix", &Server{Handler: echo})
	c := r.connect(t, 16380)
	var sent atomic.Uint64
	go func() {
		for {
			if _, err := c.Write(notifyOf(sent.Load(), 1, messageOf("m"))); err != nil {
				return
			}
			sent.Add(1)
		}
	}()
	acks := make(chan uint64, 1)
	go func() {
		var n uint64
		for a, err := c.read(); err == nil && a.kind == 103; a, err = c.read() {
			n++
		}
		c.Close()
		acks <- n
	}()
	eventually(t, "traffic", func() bool { return sent.Load() > 100 })
	must(t, r.Shutdown(context.Background()))
	if n, m := <-acks, r.Stats().Messages; n != m {
		t.Errorf("%d messages handled, %d ACKs", m, n)
	}
}

// TestShutdownEndsWithItsContext: a handler that does not return does not keep
// Shutdown, and a second Shutdown waits for the rest.
func TestShutdownEndsWithItsContext(t *testing.T) {
	gate, running := make(chan struct{}), make(chan struct{})
	r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
		close(running)
		m.Block()
		<-gate
	}})
	c := r.connect(t, 16380)
	_, err := c.Write(notifyOf(1, 1, messageOf("m")))
	must(t, err)
	<-running
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := c.read(); err == nil {
		t.Error("the connection is still answered")
	}
	close(gate)
	must(t, r.Shutdown(context.Background()))
}

// TestShutdownWithinFrame: a frame that is half sent at Shutdown is waited for.
func TestShutdownWithinFrame(t *testing.T) {
	r := start(t, "tcp", &Server{Handler: echo})
	c := r.connect(t, 100_000)
	b := body(1, 50_000)
	frame := notifyOf(5, 1, messageOf("m", arg{"body", b}))
	_, err := c.Write(frame[:20_000])
	must(t, err)
	down := make(chan error)
	go func() { down <- r.Shutdown(context.Background()) }()
	eventually(t, "no new connections", r.isClosing)
	_, err = c.Write(frame[20_000:])
	must(t, err)
	a, err := c.read()
	must(t, err)
	if a.stream != 5 || a.vars["got"] != sum(b) {
		t.Errorf("got %+v", a)
	}
	if a, err := c.read(); err != nil || a.kind != 102 {
		t.Errorf("goodbye %+v, %v", a, err)
	}
	c.Close()
	must(t, <-down)
}
