package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/rig"
)

// TestPrefillDecode has prompts computed on replicas of their own, by sidecars of the
// decode replicas. Clients cannot name such a replica, and without it or without the
// agent the decode replicas compute the prompts.
func TestPrefillDecode(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		engines := map[string]*rig.Engine{}
		var replicas []string
		for _, e := range []struct {
			name, role string
		}{{"p1", "prefill"}, {"d1", "decode"}, {"d2", "decode"}} {
			engines[e.name] = rig.StartEngine(t, e.name, rig.EngineOptions{Models: []string{rig.Model}, Sidecar: e.role == "decode"})
			replicas = append(replicas, fmt.Sprintf("%s: {address: %q, role: %s}", e.name, engines[e.name].Address, e.role))
		}
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], sidecar: llm-d, prefill_tokens: 500, replicas: {%s}}}\n",
			rig.Pool, rig.Model, strings.Join(replicas, ", ")))
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		sent := 0
		// ask sends a new prompt, and returns the replicas that computed it and that
		// answered.
		ask := func(size int, forged string) (prefilled, served, seen string) {
			t.Helper()
			sent++
			c := rig.Call{Body: fmt.Appendf(nil, `{"model":%q,"max_tokens":3,"stream":%v,"messages":[{"role":"user","content":%q}]}`, rig.Model, sent%2 == 0, rig.Fill(size, 100_000*sent))}
			if forged != "" {
				c.Header = map[string]string{fakevllm.PrefillHeader: forged}
			}
			a := c.Do(client, s.Front)
			if err := c.Check(a); err != nil {
				t.Fatal(err)
			}
			return a.Header.Get(fakevllm.PrefilledBy), a.Header.Get("X-Engine"), a.Header.Get("X-Seen-Headers")
		}
		for range 8 {
			if by, on, _ := ask(8000, ""); by != "p1" || on[0] != 'd' {
				t.Fatalf("a long prompt was computed by %q and answered by %q", by, on)
			}
		}
		if n := engines["p1"].Sim.Stats().Finished; n != 8 {
			t.Errorf("%d prompts were computed by p1, want 8", n)
		}
		header := strings.ToLower(fakevllm.PrefillHeader)
		for _, forged := range []string{"127.0.0.1:1", engines["p1"].Address} {
			if by, _, seen := ask(200, forged); by != "" || strings.Contains(seen, header) {
				t.Errorf("a short prompt was computed by %q; the engine saw %s", by, seen)
			}
			if by, _, _ := ask(8000, forged); by != "p1" {
				t.Errorf("beside the header of a client, the prompt was computed by %q", by)
			}
		}
		p := s.Agent.Settled(rig.Pool)
		if got := p.Replica("p1"); got.Served != 10 || got.InFlight != 0 || got.Role != "prefill" || p.Legs == nil || p.Legs.Legs != 10 {
			t.Errorf("p1 is %+v, legs %+v", got, p.Legs)
		}
		s.Idle(p)

		engines["p1"].Down(t)
		rig.Eventually(t, 20*time.Second, "the prefill replica is found down", func() (bool, string) {
			state := s.Agent.Pool(rig.Pool).Replica("p1").State
			return state == "down", state
		})
		if by, on, seen := ask(8000, ""); by != "" || on[0] != 'd' || strings.Contains(seen, header) {
			t.Errorf("without p1, %q answered, after %q; it saw %s", on, by, seen)
		}

		// Alone, the proxy balances over those that generate, and clients name nobody.
		engines["p1"].Up(t)
		s.Agent.Kill()
		for range 6 {
			if by, on, seen := ask(8000, engines["p1"].Address); by != "" || on[0] != 'd' || strings.Contains(seen, header) {
				t.Errorf("without an agent, %q answered, after %q; it saw %s", on, by, seen)
			}
		}
	})
}

// TestPrefillTargets has replicas with roles come and go, in a file of targets.
func TestPrefillTargets(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		p1 := rig.StartEngine(t, "p1", rig.EngineOptions{Models: []string{rig.Model}})
		d1 := rig.StartEngine(t, "d1", rig.EngineOptions{Models: []string{rig.Model}, Sidecar: true})
		file := filepath.Join(t.TempDir(), "targets.json")
		list := func(prefill string) {
			t.Helper()
			text := fmt.Sprintf(`[{"targets": [%q], "labels": {"role": "decode"}}, {"targets": [%s], "labels": {"role": "prefill"}}]`, d1.Address, prefill)
			if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
		}
		list("")
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], sidecar: llm-d, prefill_tokens: 500, discover: {file: %q, poll: 100ms}}}\n", rig.Pool, rig.Model, file))
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		sent := 0
		computed := func(by string) {
			t.Helper()
			rig.Eventually(t, 20*time.Second, "prompts are computed by "+by, func() (bool, string) {
				sent++
				body := fmt.Appendf(nil, `{"model":%q,"max_tokens":3,"messages":[{"role":"user","content":%q}]}`, rig.Model, rig.Fill(8000, 100_000*sent))
				a := rig.Call{Body: body}.Do(client, s.Front)
				if a.Status == 200 && a.Engine == "p1" {
					t.Fatal("the proxy sent a request to the prefill replica")
				}
				return a.Status == 200 && a.Engine == "d1" && a.Header.Get(fakevllm.PrefilledBy) == by, fmt.Sprint(a.Status, a.Engine, a.Header, a.Err)
			})
		}
		computed("")
		list(fmt.Sprintf("%q", p1.Address))
		computed("p1")
		p := s.Agent.Settled(rig.Pool)
		roles := ""
		for _, r := range p.Replicas {
			roles += r.Role + " " + r.State + " "
		}
		if len(p.Replicas) != 2 || !strings.Contains(roles, "prefill up") || !strings.Contains(roles, "decode up") {
			t.Errorf("%s: %+v", roles, p)
		}
		list("")
		computed("")
		s.Idle(s.Agent.Settled(rig.Pool))
	})
}
