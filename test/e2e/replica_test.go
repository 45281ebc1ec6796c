package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// serve sends n small requests one by one and returns who served them. Each has
// to succeed.
func (s *site) serve(client *http.Client, n int) map[string]int {
	s.t.Helper()
	by := map[string]int{}
	for i := range n {
		c := small(i%2 == 0)
		a := c.do(client, s.front)
		if err := c.check(a); err != nil {
			s.t.Errorf("request %d: %v", i, err)
		}
		by[a.engine]++
	}
	return by
}

// awaitState waits until the agent knows the replica to be in one of the states.
func (s *site) awaitState(replica string, most time.Duration, states ...string) {
	s.t.Helper()
	eventually(s.t, most, fmt.Sprintf("%s is %s", replica, strings.Join(states, " or ")), func() (bool, string) {
		p := s.agent.pool(pool)
		for _, state := range states {
			if p.replica(replica).State == state {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v of %v", p.replica(replica), p.Outcomes)
	})
}

// returns waits until the replica serves again.
func (s *site) returns(client *http.Client, replica string) {
	s.t.Helper()
	eventually(s.t, 10*time.Second, replica+" serves again", func() (bool, string) {
		by := s.serve(client, 6)
		return by[replica] > 0, fmt.Sprint(by)
	})
}

// TestReplicaTrouble has replicas fail in each way. The next decision knows, and
// knows when it is over.
func TestReplicaTrouble(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, engines := threeReplicas(t, bin)
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		bad := engines[0]
		if by := s.serve(client, 30); len(by) != 3 {
			t.Fatalf("before any trouble, served by %v", by)
		}

		// hit sends requests until one meets the bad replica, which shall fail
		// it, and returns how it ended there.
		hit := func(c call) answer {
			t.Helper()
			for range 50 {
				if a := c.do(client, s.front); a.engine == bad.name {
					return a
				}
			}
			t.Fatalf("50 requests have not met %s", bad.name)
			return answer{}
		}
		// spared checks that the next requests, as long as the agent has the
		// replica in that state, succeed elsewhere.
		spared := func(state string, n int) {
			t.Helper()
			before := s.agent.pool(pool).replica(bad.name)
			if before.State != state {
				t.Errorf("%s is %s, want %s", bad.name, before.State, state)
			}
			for i := range n {
				by := s.serve(client, 1)
				now := s.agent.pool(pool).replica(bad.name)
				if now.State != state && i > 0 {
					return
				}
				if now.State != state || now.Chosen != before.Chosen || by[bad.name] != 0 {
					t.Errorf("%s: request %d by %v, %+v, before %+v", state, i, by, now, before)
					return
				}
			}
		}
		failed := func() int { return s.agent.pool(pool).replica(bad.name).Failed }

		// It answers 500.
		before := failed()
		fault(t, bad, `{"status":500,"count":1}`)
		if a := hit(small(false)); a.status != 500 || a.engine != bad.name {
			t.Errorf("a 500 came as %d of %q: %v", a.status, a.engine, a.err)
		}
		s.awaitState(bad.name, 2*time.Second, "cooling")
		spared("cooling", 10)
		if n := failed() - before; n != 1 {
			t.Errorf("a 500 counts %d failures, want 1", n)
		}
		s.awaitState(bad.name, 5*time.Second, "up")
		s.returns(client, bad.name)

		// It dies in mid-stream. HAProxy 3.0 puts some of these on the client, and
		// a machine that is busy may look after the pause, which is short.
		before = failed()
		for n := 1; ; n++ {
			ended := s.agent.pool(pool).ended()
			fault(t, bad, `{"die_after":3,"count":1}`)
			if a := hit(small(true)); a.err == nil {
				t.Errorf("a stream that broke came whole: %q", a.body)
			}
			eventually(t, 2*time.Second, "the end is known", func() (bool, string) {
				p := s.agent.pool(pool)
				return p.ended() > ended && p.replica(bad.name).InFlight == 0, fmt.Sprint(p)
			})
			p := s.agent.pool(pool)
			if died := p.Outcomes["died"]; p.replica(bad.name).Failed-before != died {
				t.Errorf("%d streams died, %d failures of %s", died, p.replica(bad.name).Failed-before, bad.name)
			}
			if p.replica(bad.name).State == "cooling" {
				spared("cooling", 10)
				break
			}
			if n == 10 {
				t.Fatalf("%s was not cooling after any of %d breaks", bad.name, n)
			}
			s.returns(client, bad.name)
		}
		s.awaitState(bad.name, 5*time.Second, "up")
		s.returns(client, bad.name)

		// It dies with requests in their prefill, from clients that it has served
		// before. To some of these HAProxy 2.6 closes without a word.
		slow := small(false)
		slow.header = map[string]string{"X-Fake-Delay": "20s"}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		status := make(chan int, 9)
		for range cap(status) {
			req, err := slow.request(ctx, s.front, nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				resp, err := client.Do(req)
				if err != nil {
					status <- 0
					return
				}
				resp.Body.Close()
				status <- resp.StatusCode
			}()
		}
		eventually(t, 5*time.Second, "all are in flight", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.Reservations == cap(status), fmt.Sprint(p)
		})
		n := s.agent.pool(pool).replica(bad.name).InFlight
		if n == 0 {
			t.Fatalf("none of %d is at %s", cap(status), bad.name)
		}
		bad.down()
		for range n {
			select {
			case code := <-status:
				if code != 502 && (code != 0 || bin.Version != "2.6") {
					t.Errorf("a request whose replica died was answered %d, want 502", code)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("a request whose replica died was not answered")
			}
		}
		eventually(t, 20*time.Second, "nothing is in flight at "+bad.name, func() (bool, string) {
			p := s.agent.pool(pool)
			return p.replica(bad.name).InFlight == 0, fmt.Sprint(p)
		})
		leave()
		bad.up(t)
		s.awaitState(bad.name, 30*time.Second, "up")
		s.returns(client, bad.name)

		// It refuses connections. The request that meets it is served by
		// another; after that only the cooling's end leads a request there.
		before = failed()
		bad.down()
		eventually(t, 5*time.Second, "a decision has met the refusal", func() (bool, string) {
			by := s.serve(client, 1)
			p := s.agent.pool(pool)
			return p.replica(bad.name).Failed > before || p.replica(bad.name).State == "down", fmt.Sprint(by, p)
		})
		s.awaitState(bad.name, 2*time.Second, "cooling", "down")
		s.awaitState(bad.name, 15*time.Second, "down") // by HAProxy's checks
		spared("down", 20)
		bad.up(t)
		s.awaitState(bad.name, 15*time.Second, "up")
		s.returns(client, bad.name)

		// It is drained at the proxy.
		s.command("set server " + pool + "/" + bad.name + " state drain")
		s.awaitState(bad.name, time.Second, "draining")
		spared("draining", 20)
		s.command("set server " + pool + "/" + bad.name + " state ready")
		s.awaitState(bad.name, time.Second, "up")
		s.returns(client, bad.name)

		// Nothing is left of all this.
		p := s.agent.settled(pool)
		for _, r := range p.Replicas {
			if r.InFlight != 0 || r.Waiting != 0 || r.Tokens != 0 || r.State != "up" {
				t.Errorf("at the end: %+v", r)
			}
			if r.Name != bad.name && r.Failed != 0 {
				t.Errorf("%s is blamed for %d failures that were another's", r.Name, r.Failed)
			}
		}
		var silent []string
		if bin.Version == "2.6" {
			silent = append(silent, "pointsman_reservations_expired_total")
		}
		s.agent.untroubled(silent...)
	})
}

// fault sets how the engine fails from now on.
func fault(t *testing.T, e *engine, how string) {
	t.Helper()
	if a := (call{path: "/fake/fail", body: []byte(how)}).do(http.DefaultClient, e.address); a.err != nil || a.status != 200 {
		t.Fatalf("fault: %v %s", a.err, a.body)
	}
}

// TestRuntimeServers lets a pool without a list of replicas take them from
// HAProxy: servers added at run time are used within a second, weights are
// followed, and removed ones are forgotten.
func TestRuntimeServers(t *testing.T) {
	everyVersion(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		a := startEngine(t, "a", fakevllm.Options{Models: []string{model}})
		b := startEngine(t, "b", fakevllm.Options{Models: []string{model}})
		s := newSite(t, bin, fmt.Sprintf("pools: {%s: {models: [%s], policy: random}}\n", pool, model))
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()

		add := func(e *engine) {
			t.Helper()
			s.command(fmt.Sprintf("add server %s/%s %s", pool, e.name, e.address))
			s.command(fmt.Sprintf("enable server %s/%s", pool, e.name))
			eventually(t, time.Second, e.name+" is used", func() (bool, string) {
				before := s.agent.pool(pool)
				if before.replica(e.name).Name == "" {
					return false, fmt.Sprintf("%+v", before)
				}
				s.serve(client, 4)
				p := s.agent.pool(pool)
				return p.replica(e.name).Chosen > 0, fmt.Sprintf("%+v", p)
			})
		}
		add(a)
		add(b)
		if r := s.agent.pool(pool).replica("b"); r.Address != b.address {
			t.Errorf("address of b is %q, want %q", r.Address, b.address)
		}

		s.command("set server llama/b weight 9")
		eventually(t, time.Second, "the weight is known", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.replica("b").Weight == 9 && p.replica("a").Weight == 1, fmt.Sprintf("%+v", p)
		})
		// Nine of ten go to b: of 200, fewer than 160 come once in a million.
		if by := s.serve(client, 200); by["b"] < 160 || by["a"] == 0 {
			t.Errorf("with weights 1 and 9, served by %v", by)
		}

		s.command("disable server llama/a")
		s.awaitState("a", time.Second, "down")
		if by := s.serve(client, 20); by["a"] != 0 {
			t.Errorf("in maintenance, a served %d", by["a"])
		}
		eventually(t, 5*time.Second, "HAProxy removes a", func() (bool, string) {
			out := s.command("del server llama/a")
			return strings.Contains(out, "deleted"), out
		})
		eventually(t, time.Second, "the agent forgets a", func() (bool, string) {
			p := s.agent.pool(pool)
			return len(p.Replicas) == 1, fmt.Sprintf("%+v", p)
		})
		s.serve(client, 10)
		s.agent.settled(pool)
		s.agent.untroubled()
	})
}
