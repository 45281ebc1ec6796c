package templates_test

import (
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// absent: without an agent, requests are served by all replicas of the pool
// that their model names.
func (g *rig) absent() {
	g.Helper()
	r1, r2 := g.r1.hits.Load(), g.r2.hits.Load()
	const most = 60 // leastconn may begin with the same server for a while
	for range most {
		if res, body := g.post(); res.StatusCode != 200 {
			g.Fatalf("without an agent: %d %s", res.StatusCode, body)
		}
		if g.r1.hits.Load() > r1 && g.r2.hits.Load() > r2 {
			break
		}
	}
	if g.r1.hits.Load() == r1 || g.r2.hits.Load() == r2 {
		g.Errorf("without an agent the replicas got %d and %d of %d requests", g.r1.hits.Load()-r1, g.r2.hits.Load()-r2, most)
	}
	if g.form == "one pool" {
		return
	}
	for _, model := range []string{"a", "it's \"other\" $1"} {
		body, _ := json.Marshal(map[string]any{"messages": strings.Repeat("x", 70000), "model": model})
		if res, text := g.postBody(string(body)); res.Header.Get("X-Replica") != "other" {
			g.Errorf("without an agent model %q went to %s: %d %s", model, res.Header.Get("X-Replica"), res.StatusCode, text)
		}
	}
}

// returns: HAProxy finds an agent that came up by itself.
func (g *rig) returns() {
	g.Helper()
	g.decide(vars{"server": "r1"})
	n := g.agent.asked.Load()
	eventually(g.T, "HAProxy to find the agent", func() bool {
		g.post()
		return g.agent.asked.Load() > n
	})
}

// slowAgent: a decision that is late is not waited for.
func (g *rig) slowAgent() {
	hold := make(chan struct{})
	g.agent.answers(func(vars) vars { <-hold; return nil })
	res, body := g.post()
	close(hold)
	if l := g.feed.wait(g.T, "close", g.rid()); res.StatusCode != 200 || l["err"] != "1" {
		g.Errorf("slow agent: %d %s, feed %v", res.StatusCode, body, l)
	}
}

// waitsNoMore: requests stop to wait for an agent that does not answer. A few
// at once prove nothing: each of HAProxy's threads has its own view of the
// agent. Of 20 in a row none may wait.
func (g *rig) waitsNoMore() {
	g.Helper()
	eventually(g.T, "requests to go on without the agent", func() bool {
		waited := 0
		for range 20 {
			start := time.Now()
			if res, body := g.post(); res.StatusCode != 200 {
				g.Fatalf("without an agent: %d %s", res.StatusCode, body)
			}
			// The replica answers at once, so this long is the processing timeout.
			if time.Since(start) >= 300*time.Millisecond {
				waited++
			}
		}
		return waited == 0
	})
}

// frozen: an agent that is stopped by a signal, its sockets open, is no worse
// than a dead one.
func (g *rig) frozen() {
	thaw := g.agent.freeze()
	g.waitsNoMore()
	thaw()
}

// killed: an agent that dies under load fails no request.
func (g *rig) killed() {
	g.decide(vars{"server": "r1"})
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := g.do(g.Context(), "POST", "/v1/chat/completions", `{"model":"llama-8b"}`)
				if err != nil {
					g.Error(err)
					return
				}
				res.Body.Close()
				if res.StatusCode != 200 {
					g.Errorf("an agent that died under load: %d", res.StatusCode)
				}
			}
		})
	}
	n := g.agent.asked.Load()
	eventually(g.T, "load", func() bool { return g.agent.asked.Load() > n+50 })
	g.agent.stop()
	for range 30 {
		g.post()
	}
	close(stop)
	load.Wait()
	g.waitsNoMore()
}
