package adversary

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestFlood opens connections that send half a request and wait, and sends as many
// requests as go through besides. Those are decided and served, the agent keeps its
// memory, and nothing of the flood stays.
func TestFlood(t *testing.T) {
	rig.OnEach(t, rig.Rotated(t), func(t *testing.T, r rig.Release) {
		conns, clients, length := 800, 32, 3*time.Second
		if rig.Soak {
			conns, clients, length = 5000, 256, 20*time.Second
		}
		var files syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
			t.Fatal(err)
		}
		conns = min(conns, int(files.Cur)/4)
		s, _ := rig.Replicas(t, r, 6, "least_work") // maxconn follows their number
		s.Patient()
		s.Start()
		body := rig.Chat(rig.Model, 4000, 4, false, 7)
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", rig.ChatPath, len(body))
		part := func(i int) string {
			if i%3 == 0 {
				return head[:len(head)-4] // half of the headers
			}
			return head + string(body[:len(body)/2])
		}
		dial := func(i int) (net.Conn, error) {
			c, err := net.DialTimeout("tcp", s.Front, 10*time.Second)
			if err == nil {
				_, err = io.WriteString(c, part(i))
			}
			return c, err
		}
		// They wait for as long as the proxy lets them, and come again.
		var waiting sync.WaitGroup
		var ended atomic.Bool
		open := make([]atomic.Pointer[net.Conn], conns)
		leave := func() {
			ended.Store(true)
			for i := range open {
				if c := open[i].Load(); c != nil {
					(*c).Close()
				}
			}
			waiting.Wait()
		}
		t.Cleanup(leave)
		for i := range conns {
			c, err := dial(i)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			open[i].Store(&c)
			waiting.Go(func() {
				for {
					_, _ = io.Copy(io.Discard, c)
					c.Close()
					if ended.Load() {
						return
					}
					again, err := dial(i)
					if err != nil {
						t.Errorf("connection %d: %v", i, err)
						return
					}
					c = again
					if open[i].Store(&again); ended.Load() {
						c.Close()
					}
				}
			})
		}
		goroutines := func() int { return int(s.Agent.Metrics()["go_goroutines"]) }
		calm := goroutines()
		before := s.Agent.RSS()
		client := rig.NewClient(clients, true, false)
		defer client.CloseIdleConnections()
		var n, bad atomic.Int32
		var all sync.WaitGroup
		until := time.Now().Add(length)
		for range clients {
			all.Go(func() {
				c := rig.Call{Body: rig.Chat(rig.Model, 400, 1, false, 7)}
				for time.Now().Before(until) {
					n.Add(1)
					if a := c.Do(client, s.Front); a.Err != nil || a.Status != http.StatusOK {
						bad.Add(1)
						t.Logf("%d %v", a.Status, a.Err)
					}
				}
			})
		}
		all.Wait()
		t.Logf("%d connections wait; %.0f requests/s, %d failed; the agent takes %d MiB more", conns, float64(n.Load())/length.Seconds(), bad.Load(), (s.Agent.RSS()-before)>>20)
		if bad.Load() > 0 || n.Load() < 100 {
			t.Errorf("%d of %d requests failed", bad.Load(), n.Load())
		}
		if more := s.Agent.RSS() - before; more > 64<<20 && !rig.Raced {
			t.Errorf("the agent takes %d MiB more", more>>20)
		}
		// Slow ones are served once they send the rest.
		for range 10 {
			c, err := dial(1)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := c.Write(body[len(body)/2:]); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("a slow request: %v %v", resp, err)
			}
			resp.Body.Close()
		}
		leave()
		p := s.Agent.Settled(rig.Pool)
		s.Idle(p)
		if p.FellOpen != 0 {
			t.Errorf("%d requests went on without a decision", p.FellOpen)
		}
		// The proxy keeps connections to the agent, at most one for each question that it
		// has asked at a time: more than clients, if slow bodies ended together. Each has a
		// goroutine.
		rig.Eventually(t, 20*time.Second, "the goroutines of the flood have ended", func() (bool, string) {
			now, m := goroutines(), s.Agent.Metrics()
			kept := int(m["pointsman_spoe_connections"] + m["pointsman_nginx_connections"])
			return now <= calm+kept+32 && kept <= conns+clients, fmt.Sprintf("%d, before %d, with %d connections", now, calm, kept)
		})
	})
}

// TestHugeBodies sends bodies of 100 MB, over HTTP/1.1 and HTTP/2, with their length
// and without, and slowly. The engine gets all of each, and the agent keeps its memory.
func TestHugeBodies(t *testing.T) {
	rig.OnEach(t, rig.Rotated(t), func(t *testing.T, r rig.Release) {
		s, _ := rig.Replicas(t, r, 2, "least_work")
		s.Patient()
		s.Start()
		before := s.Agent.RSS()
		body := []byte(fmt.Sprintf(`{"model":%q,"max_tokens":2,"messages":[{"role":"user","content":[{"type":"text","text":"what is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,`, rig.Model) +
			strings.Repeat("QUJD", 24<<20) + `"}}]}]}`)
		for _, h2 := range []bool{false, true} {
			client, host := rig.NewClient(2, true, h2), s.Front
			if h2 {
				host = s.Front2
			}
			for _, chunked := range []bool{false, true} {
				if h2 == chunked && !rig.Soak {
					continue
				}
				c := rig.Call{Body: body, Chunked: chunked}
				start := time.Now()
				if err := c.Check(c.Do(client, host)); err != nil {
					t.Errorf("HTTP/2 %t, chunked %t: %v", h2, chunked, err)
				}
				t.Logf("HTTP/2 %t, chunked %t: %d MB in %v", h2, chunked, len(body)>>20, time.Since(start).Round(time.Millisecond))
			}
			client.CloseIdleConnections()
		}
		if more := s.Agent.RSS() - before; more > 128<<20 && !rig.Raced {
			t.Errorf("the agent takes %d MiB more", more>>20)
		}
		// A body that comes byte by byte.
		c, err := net.DialTimeout("tcp", s.Front, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		short := rig.Chat(rig.Model, 200, 2, false, 7)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", rig.ChatPath, len(short))
		for i := range short {
			if _, err := c.Write(short[i : i+1]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("byte by byte: %v %v", resp, err)
		}
		resp.Body.Close()
		s.Agent.Settled(rig.Pool)
	})
}
