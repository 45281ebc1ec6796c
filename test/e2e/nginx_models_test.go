package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// TestNginxModels serves two pools and an alias behind one server, refuses an
// unknown model in OpenAI's form, and sees the model of a long body at its end.
func TestNginxModels(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		o := fakevllm.Options{Models: []string{model, "coder", "alias"}}
		l1, l2, c1 := startEngine(t, "l1", o), startEngine(t, "l2", o), startEngine(t, "c1", o)
		s := newNginxSite(t, bin, fmt.Sprintf("models: {alias: code}\npools:\n  %s: {models: [%s], replicas: %s}\n  code: {models: [coder], replicas: %s}\n",
			pool, model, replicasYAML(l1, l2), replicasYAML(c1)))
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		last := []byte(fmt.Sprintf(`{"max_tokens":2,"messages":[{"role":"user","content":%q}],"model":"coder"}`, fill(1_500_000, 1)))
		for name, want := range map[string]struct {
			body   []byte
			engine string
		}{
			"llama":      {chat(model, 400, 2, false, 1), "l"},
			"code":       {chat("coder", 400, 2, false, 1), "c1"},
			"alias":      {chat("alias", 400, 2, false, 1), "c1"},
			"model last": {last, "c1"},
		} {
			for range 6 {
				c := call{body: want.body}
				a := c.do(client, s.front)
				if err := c.check(a); err != nil || !strings.HasPrefix(a.engine, want.engine) {
					t.Errorf("%s: served by %s, %v", name, a.engine, err)
				}
			}
		}
		a := call{body: chat("nobody's", 400, 2, true, 1)}.do(client, s.front)
		var refused struct {
			Error struct{ Message, Type, Param, Code string }
		}
		if err := json.Unmarshal(a.body, &refused); err != nil || a.status != 404 || refused.Error.Code != "model_not_found" ||
			refused.Error.Param != "model" || !strings.Contains(refused.Error.Message, "nobody's") || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%d %s %v", a.status, a.body, err)
		}
		if p := s.agent.settled("code"); p.Outcomes["served"] != 18 {
			t.Errorf("%+v", p)
		}
		if p := s.agent.settled(pool); p.Outcomes["served"] != 6 {
			t.Errorf("%+v", p)
		}
		s.quiet()
	})
}

// TestBothProxies serves an HAProxy and an nginx with one agent. Both see the
// same replicas: what the one learns, the other goes by.
func TestBothProxies(t *testing.T) {
	haproxies := proxies.HAProxies(t)
	for i, bin := range proxies.Nginxes(t) {
		t.Run(bin.Version, func(t *testing.T) {
			t.Parallel()
			n, engines := nginxReplicas(t, bin, 3)
			h := &site{t: t, bin: haproxies[min(i, len(haproxies)-1)], dir: n.dir, agent: n.agent, front: fmt.Sprint("127.0.0.1:", proxies.FreePort(t)),
				front2: fmt.Sprint("127.0.0.1:", proxies.FreePort(t)), runtime: n.runtime, feed: n.feed}
			n.edit("spoe: off", fmt.Sprintf("spoe: \"unix://%s\"", h.spoe()))
			n.edit("pools:", fmt.Sprintf("haproxy: {runtime_api: \"unix://%s\", bind: %q, poll: 100ms, processing_timeout: 1s}\npools:", h.runtime, h.front))
			n.agent.start()
			n.startProxy()
			h.startProxy()
			h.awaitAgent()
			byNginx, byHAProxy := startTraffic(t, n.front, 4), startTraffic(t, h.front, 4)
			byNginx.await(100)
			byHAProxy.await(100)

			// What HAProxy's checks and its runtime API say holds for nginx too.
			client := newClient(2, true, false)
			defer client.CloseIdleConnections()
			h.command("set server " + pool + "/r1 state drain")
			h.awaitState("r1", 2e9, "draining")
			total := byNginx.stop() + byHAProxy.stop()
			if by := n.serve(client, 10); by["r1"] != 0 {
				t.Errorf("drained at HAProxy, nginx sent it %d of 10", by["r1"])
			}
			h.command("set server " + pool + "/r1 state ready")
			h.awaitState("r1", 2e9, "up")
			// And what nginx meets holds for HAProxy.
			fault(t, engines[1], `{"status":500,"count":1}`)
			met := 10
			for {
				met++
				if a := small(false).do(client, n.front); a.status == 500 {
					break
				}
				if met > 60 {
					t.Fatal("r2 was not met")
				}
			}
			n.awaitState("r2", 2e9, "cooling")
			if by := h.serve(client, 6); by["r2"] != 0 {
				t.Errorf("met by nginx, HAProxy sent it %d of 6", by["r2"])
			}
			p := n.agent.settled(pool)
			n.idle(p)
			if want := total + met + 6; p.Decisions != want || p.ended() != want {
				t.Errorf("%d requests: %d decisions, outcomes %v", want, p.Decisions, p.Outcomes)
			}
			n.agent.untroubled()
		})
	}
}
