package spoa

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// An answer that is kept back is sent when it is ready, from wherever, and the
// memory of its message is given back before.
func TestLater(t *testing.T) {
	for _, size := range []int{100, copyBelow, inSize / 2, 20_000} {
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
					if !holds(func() bool {
						k.mu.Lock()
						defer k.mu.Unlock()
						return k.frame == nil
					}) {
						t.Error("the memory is not given back")
					}
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
