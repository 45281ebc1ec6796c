package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// TestNginxMixed is TestMixed on nginx.
func TestNginxMixed(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		n := 1000
		if bin.Version == "1.26" {
			n = 5000
		}
		if soak {
			n = 100_000
		}
		s, engines := nginxReplicas(t, bin, 4)
		s.edit("policy: round_robin, ", "")
		s.start()
		m := sendMixture(t, s.site, n)

		p := s.agent.settled(pool)
		s.idle(p)
		for _, r := range p.Replicas {
			if r.State != "up" || r.Failed != 0 {
				t.Errorf("replica at the end: %+v", r)
			}
			if seen := m.served[r.Name]; r.Served < seen || r.Served > seen+m.aborted {
				t.Errorf("%s served %d, its clients saw %d (%d left)", r.Name, r.Served, seen, m.aborted)
			}
		}
		for _, name := range []string{"server_mismatch_total", "undecided_total", "reservations_adopted_total", "outcomes_unreserved_total"} {
			if v := s.count(name); v != 0 {
				t.Errorf("%s is %d, want 0", name, v)
			}
		}
		// Whatever was reserved has ended by an outcome.
		if reserved := p.Decisions - s.count("client_gone_before_decision_total"); p.ended() < reserved || p.ended() > p.Decisions {
			t.Errorf("%d decisions, %d reservations, %d outcomes: %v", p.Decisions, reserved, p.ended(), p.Outcomes)
		}
		if p.Decisions < m.completed || p.Decisions > m.completed+m.aborted {
			t.Errorf("%d decisions for %d complete and %d aborted requests", p.Decisions, m.completed, m.aborted)
		}
		if p.Outcomes["served"] < m.completed {
			t.Errorf("%d outcomes served, want at least %d", p.Outcomes["served"], m.completed)
		}
		if gone := p.Outcomes["client_gone"]; gone < m.mustBeGone || gone > m.aborted {
			t.Errorf("%d outcomes client_gone, want %d to %d", gone, m.mustBeGone, m.aborted)
		}
		for _, end := range []string{"failed", "refused", "timed_out", "died"} {
			if p.Outcomes[end] != 0 {
				t.Errorf("%d outcomes %s, want none", p.Outcomes[end], end)
			}
		}
		s.quiet()
		for _, e := range engines {
			// A client that leaves takes its work with it.
			eventually(t, 5*time.Second, e.name+" is idle", func() (bool, string) {
				a := call{method: "GET", path: "/metrics"}.do(http.DefaultClient, e.address)
				return bytes.Contains(a.body, []byte("\nvllm:num_requests_running{engine=\"0\",model_name=\""+model+"\"} 0\n")), string(a.body)
			})
		}
		t.Logf("%d complete, %d aborted: %v", m.completed, m.aborted, p.Outcomes)
	})
}

// TestNginxFullSpeed sends requests as fast as they go. Every outcome is learned.
func TestNginxFullSpeed(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		n := 3000
		if bin.Version == "1.26" || soak {
			n = 20_000
		}
		s, _ := nginxReplicas(t, bin, 4)
		s.edit("policy: round_robin, ", "")
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
		s.quiet()
		t.Logf("%d requests in %v, %.0f a second", n, took.Round(time.Millisecond), float64(n)/took.Seconds())
	})
}

// TestNginxBodies sends bodies beyond what nginx and the agent hold in memory,
// in both forms, and checks what the engine got.
func TestNginxBodies(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, _ := nginxReplicas(t, bin, 2)
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
		s.quiet()
	})
}

// TestNginxHeaders sends our own headers in a client's name. Neither the agent
// believes them nor does an engine see them.
func TestNginxHeaders(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, _ := nginxReplicas(t, bin, 2)
		s.start()
		client := newClient(2, true, false)
		defer client.CloseIdleConnections()
		for i := range 20 {
			c := small(i%2 == 0)
			c.header = map[string]string{
				"X-Pointsman-Id": "forged", "X-Pointsman-Pool": "other", "X-Pointsman-Target": "@pm_broken", "X-Pointsman-Exclude": "pm~llama~r1",
				"X-Pointsman-Failed": "502|0.001", "X-Pointsman-Server": "pm~llama~r1", "X-Accel-Redirect": "@pm_broken",
			}
			a := c.do(client, s.front)
			if err := c.check(a); err != nil {
				t.Error(err)
			}
			for _, h := range []string{"X-Accel-Redirect", "X-Pointsman-Server"} {
				if a.header.Get(h) != "" {
					t.Errorf("the client sees %s: %s", h, a.header.Get(h))
				}
			}
			if seen := a.header.Get("X-Seen-Headers"); bytes.Contains([]byte(seen), []byte("x-accel")) {
				t.Errorf("the engine saw %s", seen)
			}
		}
		// Other methods are balanced by nginx.
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
		s.quiet()
	})
}
