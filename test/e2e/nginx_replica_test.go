package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// TestNginxReplicaTrouble has a replica fail in each way. The next decision
// knows, and knows when it is over.
func TestNginxReplicaTrouble(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, engines := nginxReplicas(t, bin, 3)
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		bad := engines[0]
		if by := s.serve(client, 30); len(by) != 3 {
			t.Fatalf("before any trouble, served by %v", by)
		}
		// hit sends requests until one has met the fault.
		hit := func(c call, met func(answer) bool) answer {
			t.Helper()
			for range 50 {
				if a := c.do(client, s.front); met(a) {
					return a
				}
			}
			t.Fatalf("50 requests have not met %s", bad.name)
			return answer{}
		}
		// blamed checks what came of that one, and waits until it is over.
		before := s.agent.pool(pool)
		blamed := func(how, outcome string) {
			t.Helper()
			s.awaitState(bad.name, 2*time.Second, "cooling")
			if by := s.serve(client, 10); by[bad.name] != 0 {
				t.Errorf("%s: it served %d of the next 10 requests", how, by[bad.name])
			}
			p := s.agent.pool(pool)
			if n := p.replica(bad.name).Failed - before.replica(bad.name).Failed; n != 1 {
				t.Errorf("%s: %d failures, want 1", how, n)
			}
			if outcome != "" && p.Outcomes[outcome] != before.Outcomes[outcome]+1 {
				t.Errorf("%s: outcomes %v, before %v", how, p.Outcomes, before.Outcomes)
			}
			s.awaitState(bad.name, 5*time.Second, "up")
			s.returns(client, bad.name)
			before = s.agent.pool(pool)
		}

		fault(t, bad, `{"status":500,"count":1}`)
		hit(small(false), func(a answer) bool { return a.status == 500 && a.engine == bad.name })
		blamed("answered 500", "failed")

		fault(t, bad, `{"die_after":3,"count":1}`)
		hit(small(true), func(a answer) bool { return a.err != nil })
		blamed("broke off a stream", "died")

		fault(t, bad, `{"die_after":3,"count":1}`)
		hit(small(false), func(a answer) bool { return a.err != nil })
		blamed("broke off an answer", "died")

		// Whether it had begun cannot be known: no second replica gets it.
		fault(t, bad, `{"die_after":0,"count":1}`)
		a := hit(small(true), func(a answer) bool { return a.status == 502 })
		if !strings.Contains(string(a.body), `"code":"replica_failed"`) || !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
			t.Errorf("died before its answer: %s", a.body)
		}
		blamed("died before its answer", "died")

		// It refuses connections: the client notices nothing, and another one
		// serves what it was to have.
		bad.down()
		eventually(t, 5*time.Second, "a decision has met the refusal", func() (bool, string) {
			by := s.serve(client, 1)
			p := s.agent.pool(pool)
			return p.replica(bad.name).Failed > before.replica(bad.name).Failed, fmt.Sprint(by, p)
		})
		s.awaitState(bad.name, 2*time.Second, "cooling")
		bad.up(t)
		s.awaitState(bad.name, 5*time.Second, "up")
		s.returns(client, bad.name)

		// Two of three refuse: the second choice too, for some.
		engines[0].down()
		engines[1].down()
		s.serve(client, 20)
		engines[0].up(t)
		engines[1].up(t)
		s.awaitState("r1", 20*time.Second, "up")
		s.awaitState("r2", 20*time.Second, "up")
		s.returns(client, "r1")
		s.returns(client, "r2")

		p := s.agent.settled(pool)
		s.idle(p)
		if n := p.replica("r3").Failed; n != 0 {
			t.Errorf("r3 is blamed for %d failures that were others'", n)
		}
		if p.Outcomes["refused"] != 0 {
			t.Errorf("outcomes %v", p.Outcomes)
		}
		s.quiet()
	})
}

// TestNginxAllDown has every replica refuse. The client gets a 502, as it would
// from nginx alone, and requests go on when they are back.
func TestNginxAllDown(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, engines := nginxReplicas(t, bin, 2)
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		s.serve(client, 4)
		for _, e := range engines {
			e.down()
		}
		for range 5 {
			if a := small(false).do(client, s.front); a.err != nil || a.status != 502 {
				t.Errorf("%d %v", a.status, a.err)
			}
		}
		for _, e := range engines {
			e.up(t)
		}
		eventually(t, 20*time.Second, "they serve again", func() (bool, string) {
			a := small(false).do(client, s.front)
			return a.status == 200, fmt.Sprint(a.status)
		})
		s.idle(s.agent.settled(pool))
	})
}

// TestNginxRetrySent allows a second replica where the first may have begun.
func TestNginxRetrySent(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, engines := nginxReplicas(t, bin, 2)
		s.edit("retry_sent: false", "retry_sent: true")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		fault(t, engines[0], `{"die_after":0,"count":1}`)
		s.serve(client, 10)
		p := s.agent.settled(pool)
		if p.replica("r1").Failed != 1 || p.Outcomes["served"] != 10 || p.ended() != 10 {
			t.Errorf("%+v", p)
		}
		s.idle(p)
	})
}

// TestNginxUnknownUpstream gives the agent a replica that nginx was not told of
// yet. Requests cost a second question, and none fails.
func TestNginxUnknownUpstream(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, _ := nginxReplicas(t, bin, 2)
		s.start()
		more := startEngine(t, "r9", fakevllm.Options{Models: []string{model}})
		s.edit("replicas: {", fmt.Sprintf("replicas: {r9: {address: %q}, ", more.address))
		s.agent.signal(syscall.SIGHUP)
		eventually(t, 5*time.Second, "the agent has reloaded", func() (bool, string) {
			return len(s.agent.pool(pool).Replicas) == 3, s.agent.log.String()
		})
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		if by := s.serve(client, 20); by["r9"] != 0 {
			t.Errorf("served by %v", by)
		}
		if p := s.agent.settled(pool); p.replica("r9").Chosen == 0 || p.Outcomes["served"] != 20 {
			t.Errorf("%+v", p)
		}
		files, _ := s.render()
		s.nginx.Write(proxies.File{Name: "nginx.conf", Text: files["nginx.conf"]})
		s.nginx.Reload()
		s.awaitState("r9", 60*time.Second, "up")
		client.CloseIdleConnections()
		s.returns(client, "r9")
	})
}

// TestNginxHealth has the agent ask the replicas for their health.
func TestNginxHealth(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, engines := nginxReplicas(t, bin, 2)
		s.edit("max_requests: 0", "health: {poll: 100ms}")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		s.serve(client, 4)
		fault(t, engines[0], `{"status":503,"path":"/health"}`)
		s.awaitState("r1", 5*time.Second, "down")
		if by := s.serve(client, 10); by["r1"] != 0 {
			t.Errorf("while down, served by %v", by)
		}
		if a := (call{path: "/fake/reset"}).do(client, engines[0].address); a.status != 200 {
			t.Fatal(a.status, a.err)
		}
		s.awaitState("r1", 5*time.Second, "up")
		s.returns(client, "r1")
	})
}
