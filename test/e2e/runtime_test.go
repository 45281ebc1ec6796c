package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestRuntimeServers lets a pool without a list of replicas take them from
// HAProxy: servers added at run time are used soon, weights are
// followed, and removed ones are forgotten.
func TestRuntimeServers(t *testing.T) {
	rig.OnEach(t, rig.That(rig.Releases(t), func(can rig.Abilities) bool { return can.Runtime }), func(t *testing.T, r rig.Release) {
		t.Parallel()
		a := rig.StartEngine(t, "a", rig.EngineOptions{Models: []string{rig.Model}})
		b := rig.StartEngine(t, "b", rig.EngineOptions{Models: []string{rig.Model}})
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: random}}\n", rig.Pool, rig.Model))
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()

		add := func(e *rig.Engine) {
			t.Helper()
			s.HAProxy().Command(fmt.Sprintf("add server %s/%s %s", rig.Pool, e.Name, e.Address))
			s.HAProxy().Command(fmt.Sprintf("enable server %s/%s", rig.Pool, e.Name))
			rig.Eventually(t, 5*time.Second, e.Name+" is used", func() (bool, string) {
				before := s.Agent.Pool(rig.Pool)
				if before.Replica(e.Name).Name == "" {
					return false, fmt.Sprintf("%+v", before)
				}
				s.Serve(client, 4)
				p := s.Agent.Pool(rig.Pool)
				return p.Replica(e.Name).Chosen > 0, fmt.Sprintf("%+v", p)
			})
		}
		add(a)
		add(b)
		if r := s.Agent.Pool(rig.Pool).Replica("b"); r.Address != b.Address {
			t.Errorf("address of b is %q, want %q", r.Address, b.Address)
		}

		s.HAProxy().Command("set server llama/b weight 9")
		rig.Eventually(t, 5*time.Second, "the weight is known", func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return p.Replica("b").Weight == 9 && p.Replica("a").Weight == 1, fmt.Sprintf("%+v", p)
		})
		// Nine of ten go to b: of 200, fewer than 160 come once in a million.
		if by := s.Serve(client, 200); by["b"] < 160 || by["a"] == 0 {
			t.Errorf("with weights 1 and 9, served by %v", by)
		}

		s.HAProxy().Command("disable server llama/a")
		s.AwaitState("a", 5*time.Second, "down")
		if by := s.Serve(client, 20); by["a"] != 0 {
			t.Errorf("in maintenance, a served %d", by["a"])
		}
		rig.Eventually(t, 5*time.Second, "HAProxy removes a", func() (bool, string) {
			out := s.HAProxy().Command("del server llama/a")
			return strings.Contains(out, "deleted"), out
		})
		rig.Eventually(t, 5*time.Second, "the agent forgets a", func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return len(p.Replicas) == 1, fmt.Sprintf("%+v", p)
		})
		s.Serve(client, 10)
		s.Agent.Settled(rig.Pool)
		s.Untroubled()
	})
}
