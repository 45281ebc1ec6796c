package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// TestRanks has engines with data parallelism: each rank is a cache of its own, and a
// conversation stays on the one that has it. The proxies say which one in a header.
func TestRanks(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		const ranks = 2
		var engines []*rig.Engine
		var replicas []string
		for i := range 2 {
			port := proxies.FreePorts(t, 2*ranks)
			e := rig.StartEngine(t, fmt.Sprintf("r%d", i+1), rig.EngineOptions{
				Models: []string{rig.Model}, Ranks: ranks,
				Events: fmt.Sprintf("tcp://127.0.0.1:%d", port), Replay: fmt.Sprintf("tcp://127.0.0.1:%d", port+ranks),
			})
			if err := e.Sim.Publish(); err != nil {
				t.Fatal(err)
			}
			engines = append(engines, e)
			replicas = append(replicas, fmt.Sprintf("%s: {address: %q, kv_events: {port: %d, replay: %d}}", e.Name, e.Address, port, port+ranks))
		}
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: {name: kv_aware, timeout: 40ms}, data_parallel: %d, max_requests: 0, replicas: {%s}}}\n",
			rig.Pool, rig.Model, ranks, strings.Join(replicas, ", ")))
		s.Start()
		rig.Eventually(t, 20*time.Second, "the events of each rank are followed", func() (bool, string) {
			online := 0
			for _, g := range s.Agent.Signals() {
				if g.Blocks != nil {
					online += g.Blocks.Online
				}
			}
			return online == 2*ranks, fmt.Sprint(online)
		})
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		const talks, turns, size = 48, 2, 4000 // so many that each rank gets some
		for turn := range turns {
			for talk := range talks {
				text := rig.Fill(size*(turn+1), 10*size*talk)
				c := rig.Call{Body: fmt.Appendf(nil, `{"model":%q,"max_tokens":2,"messages":[{"role":"user","content":%q}]}`, rig.Model, text)}
				a := c.Do(client, s.Front)
				if err := c.Check(a); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(a.Header.Get("X-Seen-Headers"), "x-data-parallel-rank") {
					t.Fatalf("the engine saw %s", a.Header.Get("X-Seen-Headers"))
				}
			}
		}
		queried, hit := 0, 0
		for _, e := range engines {
			for rank, st := range e.Sim.RankStats() {
				if st.QueryTokens == 0 {
					t.Errorf("rank %d of %s has no requests", rank, e.Name)
				}
				queried, hit = queried+int(st.QueryTokens), hit+int(st.HitTokens)
			}
		}
		// Of 1+2 parts of each conversation 2 are new.
		if share := float64(hit) / float64(queried); share < 0.25 {
			t.Errorf("%.2f of the prompts were cached, want almost 1/3", share)
		}
		p := s.Agent.Settled(rig.Pool)
		for _, e := range engines {
			for rank := range ranks {
				name := fmt.Sprintf("%s-dp%d", e.Name, rank)
				if rep := p.Replica(name); rep.Served == 0 || rep.State != "up" {
					t.Errorf("%s: %+v", name, rep)
				}
			}
		}
		s.Idle(p)
		// A client does not choose the rank, not even while nobody decides.
		s.Agent.Kill()
		c := rig.Small(false)
		c.Header = map[string]string{"X-Data-Parallel-Rank": "1"}
		a := c.Do(client, s.Front)
		if err := c.Check(a); err != nil || strings.Contains(a.Header.Get("X-Seen-Headers"), "x-data-parallel-rank") {
			t.Errorf("without an agent: %v, the engine saw %s", err, a.Header.Get("X-Seen-Headers"))
		}
	})
}
