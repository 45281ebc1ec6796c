package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// TestTiers has engines that offload what their GPUs evict to the memory of their hosts. A
// prompt goes to a replica that has it there rather than to one without it, and to one that
// has it on its GPU before both.
func TestTiers(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		var engines []*rig.Engine
		var replicas []string
		for i := range 3 {
			port := proxies.FreePorts(t, 2)
			e := rig.StartEngine(t, fmt.Sprintf("r%d", i+1), rig.EngineOptions{
				Models: []string{rig.Model}, CacheTokens: 16_000, CPUCacheTokens: 400_000,
				Events: fmt.Sprintf("tcp://127.0.0.1:%d", port), Replay: fmt.Sprintf("tcp://127.0.0.1:%d", port+1),
			})
			if err := e.Sim.Publish(); err != nil {
				t.Fatal(err)
			}
			engines = append(engines, e)
			replicas = append(replicas, fmt.Sprintf("%s: {address: %q, kv_events: {port: %d, replay: %d}}", e.Name, e.Address, port, port+1))
		}
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: {name: kv_aware, timeout: 40ms}, replicas: {%s}}}\n",
			rig.Pool, rig.Model, strings.Join(replicas, ", ")))
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		prompt := func(number int) []byte {
			return fmt.Appendf(nil, `{"model":%q,"max_tokens":2,"messages":[{"role":"user","content":%q}]}`, rig.Model, rig.Fill(24_000, 1_000_000*number))
		}
		ask := func(host string, number int) (engine string) {
			c := rig.Call{Body: prompt(number)}
			a := c.Do(client, host)
			if err := c.Check(a); err != nil {
				t.Fatal(err)
			}
			return a.Engine
		}
		next := 1
		evict := func(e *rig.Engine) { // what it has is offloaded
			for range 6 {
				next++
				ask(e.Address, next)
			}
		}
		const wanted = 1
		ask(engines[1].Address, wanted)
		evict(engines[1])
		believed := func(what string, want map[string]string) {
			t.Helper()
			rig.Eventually(t, 20*time.Second, what, func() (bool, string) {
				out := s.Agent.Run(prompt(wanted), "explain", "--json")
				var x struct {
					Candidates []struct {
						Replica string
						Cached  int `json:"cached_tokens"`
						CPU     int `json:"cached_cpu_tokens"`
					}
				}
				if err := json.Unmarshal(out, &x); err != nil {
					t.Fatalf("%v in %s", err, out)
				}
				got := map[string]string{}
				for _, c := range x.Candidates {
					switch {
					case c.Cached == 0:
						got[c.Replica] = "none"
					case c.CPU == 0:
						got[c.Replica] = "gpu"
					case c.CPU == c.Cached:
						got[c.Replica] = "cpu"
					default:
						got[c.Replica] = "both"
					}
				}
				return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprint(got)
			})
		}
		believed("r2 has the prompt in CPU memory", map[string]string{"r1": "none", "r2": "cpu", "r3": "none"})
		if got := ask(s.Front, wanted); got != "r2" {
			t.Errorf("a prompt that r2 has in CPU memory went to %s", got)
		}
		if engines[1].Sim.Stats().LoadedTokens == 0 {
			t.Error("the engine did not find it there")
		}
		evict(engines[1])
		ask(engines[2].Address, wanted)
		believed("r3 has it on its GPU", map[string]string{"r1": "none", "r2": "cpu", "r3": "gpu"})
		if got := ask(s.Front, wanted); got != "r3" {
			t.Errorf("a prompt that r3 has on its GPU went to %s", got)
		}
		if m := s.Agent.Metrics(); m[fmt.Sprintf("pointsman_prompt_offloaded_tokens_total{pool=%q,tier=\"cpu\"}", rig.Pool)] == 0 {
			t.Error("no offloaded tokens are counted")
		}
	})
}
