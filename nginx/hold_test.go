package nginx

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
	"pointsman/intake"
)

// waiting is an agent whose only replica takes one request at a time, the rest
// wait.
func waiting(t testing.TB) *asked {
	a := ask(t, Options{})
	a.in.Apply(intake.Config{Pools: []decider.PoolConfig{{
		Name: "llama", Models: []string{"my-llama"}, Policy: &policy.RoundRobin{}, PolicyName: "round_robin",
		Replicas:  []decider.ReplicaConfig{{Name: "r1", Address: "10.0.0.1:8000", Limit: 1}},
		Admission: &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "all", TTL: time.Minute, MaxRequests: 1000}}},
	}}})
	return a
}

// queued waits until n requests are held.
func (a *asked) queued(t testing.TB, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " are held"), func() bool { return status(a.d, "llama").Admission.Bands[0].Queued == n })
}

// Questions that wait are answered one by one, and their connections closed.
func TestHeldIsAnswered(t *testing.T) {
	const n, rounds = 20, 5
	a := waiting(t)
	for round := range rounds {
		id := func(i int) string { return fmt.Sprintf("%032x", round<<8|i+1) }
		if got := a.post(t, chat, "X-Pointsman-Id", id(0)); got.where != "pm~llama~r1" {
			t.Fatalf("%+v", got)
		}
		answered := make(chan string)
		for i := 1; i <= n; i++ {
			go func() {
				if got := a.post(t, chat, "X-Pointsman-Id", id(i), "X-Pointsman-Target", "@mine"); got.where != "pm~llama~r1" || got.redirect != "@mine" {
					t.Errorf("%+v", got)
				}
				answered <- id(i)
			}()
		}
		a.queued(t, n)
		for last := id(0); ; {
			a.d.Pool("llama").Finished(decider.Outcome{ID: decider.ParseID([]byte(last)), Server: []byte("r1")})
			if status(a.d, "llama").Reservations == 0 {
				break
			}
			last = <-answered
		}
	}
	if open := a.conns.Stats().Open; open > 1 {
		t.Errorf("%d connections are open", open)
	}
}

// An agent that ends answers all that waits.
func TestHeldAtTheEnd(t *testing.T) {
	const n = 50
	a := waiting(t)
	var all sync.WaitGroup
	for i := range n + 1 {
		all.Go(func() {
			if got := a.post(t, chat, "X-Pointsman-Id", fmt.Sprintf("%032x", i+1)); got.where == "" {
				t.Errorf("%+v", got)
			}
		})
	}
	a.queued(t, n)
	a.d.Drain()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := a.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	all.Wait()
	if n := a.conns.Stats().Open; n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// A panic in the answer to a request that was held closes its connection, and
// nginx balances by itself.
func TestHeldPanics(t *testing.T) {
	a := waiting(t)
	a.post(t, chat, "X-Pointsman-Id", fmt.Sprintf("%032x", 1))
	table := a.servers.table.Load()
	c, err := a.l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nX-Pointsman-Id: %032x\r\nContent-Length: %d\r\n\r\n%s", 2, len(chat), chat)
	a.queued(t, 1)
	a.servers.table.Store(nil)
	a.d.Drain()
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes were answered", n)
	}
	a.servers.table.Store(table)
	if n := a.panics.Get(); n != 1 {
		t.Errorf("%d panics", n)
	}
}

// A client that leaves while its request is held costs its connection alone, and
// what it sent after its question is not answered.
func TestHeldAndGone(t *testing.T) {
	a := waiting(t)
	a.post(t, chat, "X-Pointsman-Id", fmt.Sprintf("%032x", 1))
	question := func(id int) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nX-Pointsman-Id: %032x\r\nContent-Length: %d\r\n\r\n%s", id, len(chat), chat)
	}
	gone, err := a.l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(gone, question(2))
	a.queued(t, 1)
	gone.Close()
	stays, err := a.l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer stays.Close()
	fmt.Fprint(stays, question(3), question(4))
	a.queued(t, 2)
	a.d.Drain()
	b, err := io.ReadAll(stays)
	if n := strings.Count(string(b), "HTTP/1.1 200"); n != 1 || err != nil {
		t.Errorf("%d answers, %v: %s", n, err, b)
	}
	a.client.CloseIdleConnections()
	eventually(t, "all connections are closed", func() bool { return a.conns.Stats().Open == 0 })
	if got := a.post(t, chat, "X-Pointsman-Id", fmt.Sprintf("%032x", 5)); got.where == "" {
		t.Errorf("%+v", got)
	}
}

// An agent that may wait no longer ends although answers are held.
func TestHeldBeyondTheEnd(t *testing.T) {
	a := waiting(t)
	a.post(t, chat, "X-Pointsman-Id", fmt.Sprintf("%032x", 1))
	var asked sync.WaitGroup
	asked.Go(func() { a.post(t, chat, "X-Pointsman-Id", fmt.Sprintf("%032x", 2)) })
	a.queued(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Shutdown(ctx); err != context.Canceled {
		t.Error(err)
	}
	a.d.Drain()
	asked.Wait()
}
