package haproxy

import (
	"os"
	"strconv"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/decidertest"
	"pointsman/decider/policy"
	"pointsman/spoa"
)

// A question names who asks, by name or else by its socket, and a process that has
// ended takes its reservations with it.
func TestProcesses(t *testing.T) {
	p := NewProcesses()
	p.host = "lb1"
	var got []uint64
	asks := asked(t, func(m *spoa.Message, w *spoa.Reply) { got = append(got, p.of(m)) })
	ask := func(proc string) uint64 {
		t.Helper()
		n := len(got)
		asks.ask(1, "rid", "x", "proc", proc)
		asks.answer()
		if len(got) != n+1 {
			t.Fatalf("%d questions came", len(got)-n)
		}
		return got[n]
	}
	own := []byte("lb1/" + strconv.Itoa(os.Getpid()))
	if id := ask("lb2/17"); id != origin([]byte("lb2/17")) || len(*p.local.Load()) != 0 {
		t.Errorf("a process elsewhere is %x, watched %v", id, *p.local.Load())
	}
	if id := ask(""); id != origin(own) {
		t.Errorf("a process without a name is %x, want that of its socket", id)
	}
	if id := ask(string(own)); id != origin(own) || (*p.local.Load())[id] != os.Getpid() {
		t.Errorf("this process is %x, watched %v", id, *p.local.Load())
	}

	pool := decidertest.New(policy.LeastWork{}, 1)
	for range 3 {
		pool.Send(func(r *decider.Request) { r.Origin = origin(own) })
		pool.Send(func(r *decider.Request) { r.Origin = origin([]byte("lb2/17")) })
	}
	there := true
	p.exists = func(int) bool { return there }
	start := time.Now()
	p.Tick(pool.Decider, start)
	there = false
	p.Tick(pool.Decider, start.Add(time.Second))
	p.Tick(pool.Decider, start.Add(2*time.Second))
	if n := pool.Status().Reservations; n != 6 {
		t.Errorf("%d reservations while the lines of the process may come yet, want 6", n)
	}
	p.Tick(pool.Decider, start.Add(time.Second+goneFor))
	if n := pool.Status().Reservations; n != 3 || len(*p.local.Load()) != 0 || len(p.gone) != 0 {
		t.Errorf("%d reservations after the process has ended, want 3; watched %v, %v", n, *p.local.Load(), p.gone)
	}
}

func TestExists(t *testing.T) {
	if !exists(os.Getpid()) || !exists(1) || exists(1<<22+12345) {
		t.Error("processes are not told apart from none")
	}
}
