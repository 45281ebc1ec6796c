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

	"pointsman/test/rig"
)

// TestFullSpeed sends requests as fast as they go. Every outcome is learned.
func TestFullSpeed(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		n := 3000
		if (r.Newest && !rig.Raced) || rig.Soak {
			n = 20_000
		}
		s, _ := rig.Replicas(t, r, 4, "least_work")
		s.Start()
		const clients = 32
		client := rig.NewClient(clients, true, false)
		defer client.CloseIdleConnections()
		// The answer to a model that the engine does not know costs it nothing.
		c := rig.Call{Body: []byte(`{"model":"my-llama","max_tokens":1,"prompt":"x"}`), Path: "/v1/completions", Header: map[string]string{"X-Fake-Status": "404"}}
		var next atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for range clients {
			all.Go(func() {
				for next.Add(1) <= int64(n) {
					if a := c.Do(client, s.Front); a.Err != nil || a.Status != 404 || a.Engine == "" {
						t.Errorf("%d of %q: %v %s", a.Status, a.Engine, a.Err, a.Body)
						return
					}
				}
			})
		}
		all.Wait()
		took := time.Since(start)
		p := s.Agent.Settled(rig.Pool)
		if p.Decisions != n || p.Outcomes["served"] != n || p.Ended() != n {
			t.Errorf("%d requests: %d decisions, outcomes %v", n, p.Decisions, p.Outcomes)
		}
		s.Idle(p)
		s.Untroubled()
		t.Logf("%d requests in %v, %.0f a second", n, took.Round(time.Millisecond), float64(n)/took.Seconds())
	})
}

// TestBodies sends bodies beyond what the proxy and the agent hold in memory, in
// both forms, and checks what the engine got.
func TestBodies(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 2, "round_robin")
		s.Start()
		for _, h2 := range []bool{false, true} {
			host := s.Front
			if h2 {
				host = s.Front2
			}
			client := rig.NewClient(2, true, h2)
			for _, size := range []int{0, 2_000, 900_000, 1_100_000, 3_900_000} {
				for _, chunked := range []bool{false, true} {
					c := rig.Call{Body: rig.Chat(rig.Model, size, 2, false, size), Chunked: chunked}
					if err := c.Check(c.Do(client, host)); err != nil {
						t.Errorf("%d bytes, chunked %t, HTTP/2 %t: %v", size, chunked, h2, err)
					}
				}
			}
			// 20 MB in 60 fields that no engine minds, the model last.
			var big bytes.Buffer
			big.WriteString(`{"max_tokens":1,"prompt":"x"`)
			for i := range 60 {
				fmt.Fprintf(&big, `,"x%d":%q`, i, rig.Fill(350_000, i*7919))
			}
			fmt.Fprintf(&big, `,"model":%q}`, rig.Model)
			for _, chunked := range []bool{false, true} {
				c := rig.Call{Path: "/v1/completions", Body: big.Bytes(), Chunked: chunked}
				if err := c.Check(c.Do(client, host)); err != nil {
					t.Errorf("20 MB, chunked %t, HTTP/2 %t: %v", chunked, h2, err)
				}
			}
			client.CloseIdleConnections()
		}
		p := s.Agent.Settled(rig.Pool)
		if p.Outcomes["served"] != 24 || p.FellOpen != 0 {
			t.Errorf("%+v", p)
		}
		if most := 200 << 20; s.Agent.RSS() > most && !rig.Raced {
			t.Errorf("the agent takes %d bytes, want at most %d", s.Agent.RSS(), most)
		}
		s.Untroubled()
	})
}

// TestForgedHeaders sends our own headers from a client. The agent does not
// believe them, and no engine sees them.
func TestForgedHeaders(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 2, "round_robin")
		s.Start()
		client := rig.NewClient(2, true, false)
		defer client.CloseIdleConnections()
		for i := range 20 {
			c := rig.Small(i%2 == 0)
			c.Header = map[string]string{
				"X-Pointsman-Id": "forged", "X-Pointsman-Pool": "other", "X-Pointsman-Target": "@pm_broken", "X-Pointsman-Exclude": "pm~llama~r1",
				"X-Pointsman-Failed": "502|0.001", "X-Pointsman-Server": "pm~llama~r1", "X-Pointsman-Band": "urgent",
			}
			maps.Copy(c.Header, s.Proxy.Forged())
			a := c.Do(client, s.Front)
			if err := c.Check(a); err != nil {
				t.Error(err)
			}
			for h := range c.Header {
				if a.Header.Get(h) != "" {
					t.Errorf("the client sees %s: %s", h, a.Header.Get(h))
				}
				if seen := a.Header.Get("X-Seen-Headers"); strings.Contains(seen, strings.ToLower(h)) {
					t.Errorf("the engine saw %s", seen)
				}
			}
		}
		// The proxy balances other methods by itself.
		for _, method := range []string{"GET", "HEAD"} {
			a := rig.Call{Method: method, Path: "/v1/models"}.Do(client, s.Front)
			if a.Err != nil || a.Status != 200 || a.Engine == "" {
				t.Errorf("%s: %d %v", method, a.Status, a.Err)
			}
		}
		p := s.Agent.Settled(rig.Pool)
		if p.Decisions != 20 || p.Outcomes["served"] != 20 || p.FellOpen != 0 || p.Replica("r1").Served == 0 || p.Replica("r2").Served == 0 {
			t.Errorf("%+v", p)
		}
		s.Untroubled()
	})
}
