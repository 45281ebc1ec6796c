package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRuntimeServers lets a pool without a list of replicas take them from
// HAProxy: servers added at run time are used soon, weights are
// followed, and removed ones are forgotten.
func TestRuntimeServers(t *testing.T) {
	onEach(t, that(releases(t), func(can abilities) bool { return can.runtime }), func(t *testing.T, r release) {
		t.Parallel()
		a := startEngine(t, "a", engineOptions{Models: []string{model}})
		b := startEngine(t, "b", engineOptions{Models: []string{model}})
		s := newSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: random}}\n", pool, model))
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()

		add := func(e *engine) {
			t.Helper()
			s.haproxy().command(fmt.Sprintf("add server %s/%s %s", pool, e.name, e.address))
			s.haproxy().command(fmt.Sprintf("enable server %s/%s", pool, e.name))
			eventually(t, 5*time.Second, e.name+" is used", func() (bool, string) {
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

		s.haproxy().command("set server llama/b weight 9")
		eventually(t, 5*time.Second, "the weight is known", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.replica("b").Weight == 9 && p.replica("a").Weight == 1, fmt.Sprintf("%+v", p)
		})
		// Nine of ten go to b: of 200, fewer than 160 come once in a million.
		if by := s.serve(client, 200); by["b"] < 160 || by["a"] == 0 {
			t.Errorf("with weights 1 and 9, served by %v", by)
		}

		s.haproxy().command("disable server llama/a")
		s.awaitState("a", 5*time.Second, "down")
		if by := s.serve(client, 20); by["a"] != 0 {
			t.Errorf("in maintenance, a served %d", by["a"])
		}
		eventually(t, 5*time.Second, "HAProxy removes a", func() (bool, string) {
			out := s.haproxy().command("del server llama/a")
			return strings.Contains(out, "deleted"), out
		})
		eventually(t, 5*time.Second, "the agent forgets a", func() (bool, string) {
			p := s.agent.pool(pool)
			return len(p.Replicas) == 1, fmt.Sprintf("%+v", p)
		})
		s.serve(client, 10)
		s.agent.settled(pool)
		s.untroubled()
	})
}
