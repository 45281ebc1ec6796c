package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestFullSpeed sends requests as fast as they go. Every outcome is learned.
func TestFullSpeed(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		n := 3000
		if (r.newest && !raced) || soak {
			n = 20_000
		}
		s, _ := replicas(t, r, 4, "least_work")
		s.start()
		const clients = 32
		client := newClient(clients, true, false)
		defer client.CloseIdleConnections()
		// The answer to a model that the engine does not know costs it nothing.
		c := call{body: []byte(`{"model":"my-llama","max_tokens":1,"prompt":"x"}`), path: "/v1/completions", header: map[string]string{"X-Fake-Status": "404"}}
		var next atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for range clients {
			all.Go(func() {
				for next.Add(1) <= int64(n) {
					if a := c.do(client, s.front); a.err != nil || a.status != 404 || a.engine == "" {
						t.Errorf("%d of %q: %v %s", a.status, a.engine, a.err, a.body)
						return
					}
				}
			})
		}
		all.Wait()
		took := time.Since(start)
		p := s.agent.settled(pool)
		if p.Decisions != n || p.Outcomes["served"] != n || p.ended() != n {
			t.Errorf("%d requests: %d decisions, outcomes %v", n, p.Decisions, p.Outcomes)
		}
		s.idle(p)
		s.untroubled()
		t.Logf("%d requests in %v, %.0f a second", n, took.Round(time.Millisecond), float64(n)/took.Seconds())
	})
}

// TestBodies sends bodies beyond what the proxy and the agent hold in memory, in
// both forms, and checks what the engine got.
func TestBodies(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 2, "round_robin")
		s.start()
		for _, h2 := range []bool{false, true} {
			host := s.front
			if h2 {
				host = s.front2
			}
			client := newClient(2, true, h2)
			for _, size := range []int{0, 2_000, 900_000, 1_100_000, 3_900_000} {
				for _, chunked := range []bool{false, true} {
					c := call{body: chat(model, size, 2, false, size), chunked: chunked}
					if err := c.check(c.do(client, host)); err != nil {
						t.Errorf("%d bytes, chunked %t, HTTP/2 %t: %v", size, chunked, h2, err)
					}
				}
			}
			// 20 MB in 60 fields that no engine minds, the model last.
			var big bytes.Buffer
			big.WriteString(`{"max_tokens":1,"prompt":"x"`)
			for i := range 60 {
				fmt.Fprintf(&big, `,"x%d":%q`, i, fill(350_000, i*7919))
			}
			fmt.Fprintf(&big, `,"model":%q}`, model)
			for _, chunked := range []bool{false, true} {
				c := call{path: "/v1/completions", body: big.Bytes(), chunked: chunked}
				if err := c.check(c.do(client, host)); err != nil {
					t.Errorf("20 MB, chunked %t, HTTP/2 %t: %v", chunked, h2, err)
				}
			}
			client.CloseIdleConnections()
		}
		p := s.agent.settled(pool)
		if p.Outcomes["served"] != 24 || p.FellOpen != 0 {
			t.Errorf("%+v", p)
		}
		if most := 200 << 20; s.agent.rss() > most && !raced {
			t.Errorf("the agent takes %d bytes, want at most %d", s.agent.rss(), most)
		}
		s.untroubled()
	})
}

// TestForgedHeaders sends our own headers from a client. The agent does not
// believe them, and no engine sees them.
func TestForgedHeaders(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 2, "round_robin")
		s.start()
		client := newClient(2, true, false)
		defer client.CloseIdleConnections()
		for i := range 20 {
			c := small(i%2 == 0)
			c.header = map[string]string{
				"X-Pointsman-Id": "forged", "X-Pointsman-Pool": "other", "X-Pointsman-Target": "@pm_broken", "X-Pointsman-Exclude": "pm~llama~r1",
				"X-Pointsman-Failed": "502|0.001", "X-Pointsman-Server": "pm~llama~r1", "X-Pointsman-Band": "urgent",
			}
			maps.Copy(c.header, s.proxy.forged())
			a := c.do(client, s.front)
			if err := c.check(a); err != nil {
				t.Error(err)
			}
			for h := range c.header {
				if a.header.Get(h) != "" {
					t.Errorf("the client sees %s: %s", h, a.header.Get(h))
				}
				if seen := a.header.Get("X-Seen-Headers"); strings.Contains(seen, strings.ToLower(h)) {
					t.Errorf("the engine saw %s", seen)
				}
			}
		}
		// The proxy balances other methods by itself.
		for _, method := range []string{"GET", "HEAD"} {
			a := call{method: method, path: "/v1/models"}.do(client, s.front)
			if a.err != nil || a.status != 200 || a.engine == "" {
				t.Errorf("%s: %d %v", method, a.status, a.err)
			}
		}
		p := s.agent.settled(pool)
		if p.Decisions != 20 || p.Outcomes["served"] != 20 || p.FellOpen != 0 || p.replica("r1").Served == 0 || p.replica("r2").Served == 0 {
			t.Errorf("%+v", p)
		}
		s.untroubled()
	})
}
