package engines

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/test/rig"
)

// site is an installation with the fleet of vLLM behind it. policy is the pool's, in
// YAML, and more are further keys of the pool. prepare changes the site before it starts.
func site(t *testing.T, r rig.Release, policy, more string, prepare func(*rig.Site)) *rig.Site {
	t.Helper()
	v1, v2, em := vllms(t)
	replica := func(v *vllm) string {
		return fmt.Sprintf("%s: {address: %q, kv_events: {port: %d, replay: %d}}", v.name, v.address, v.events, v.replay)
	}
	s := rig.NewSite(t, r, fmt.Sprintf(`pools:
  %s: {models: [%s], policy: %s, %s replicas: {%s, %s}}
  em: {models: [embedder], replicas: {embedder: {address: %q}}}
`, rig.Pool, rig.Model, policy, more, replica(v1), replica(v2), em.address))
	prepare(s)
	s.Start()
	found(t, s, 2, func(g rig.Signal) bool {
		follows := g.Blocks != nil && g.Blocks.Online == 1 && g.Blocks.Tokens == vllmBlock
		return g.Engine == "vllm" && g.Age < 10 && g.Cache == vllmBlock*vllmBlocks && (follows || !strings.Contains(policy, "kv_aware"))
	})
	return s
}

// exactly is kv_aware with so much time for tokens that a busy machine has it too.
const exactly = "{name: kv_aware, timeout: 1s}"

// client is one for a machine that is busy with other things.
func client(t *testing.T) *http.Client {
	c := rig.NewClient(32, true, false)
	c.Timeout = 5 * time.Minute
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// TestVLLM sends two real vLLM what clients send.
func TestVLLM(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		s, c := site(t, r, exactly, "", (*rig.Site).Patient), client(t)
		v1, v2, em := fleet.list[0], fleet.list[1], fleet.list[2]
		t.Run("every API", func(t *testing.T) { everyAPI(t, s, c) })
		t.Run("templates", func(t *testing.T) { templates(t, s, c) })
		t.Run("agents", func(t *testing.T) { agents(t, s, c) })
		t.Run("embeddings", func(t *testing.T) {
			a := rig.Call{Path: "/v1/embeddings", Body: []byte(`{"model":"embedder","input":["one text","and another"]}`)}.Do(c, s.Front)
			if a.Status != 200 || bytes.Count(a.Body, []byte(`"embedding":[`)) != 2 {
				t.Errorf("%d %v %.300s", a.Status, a.Err, a.Body)
			}
			for path, body := range map[string]string{
				"/score":     `{"model":"embedder","text_1":"a railway","text_2":"a train"}`,
				"/v1/rerank": `{"model":"embedder","query":"a railway","documents":["a train","a ship"]}`,
				"/pooling":   `{"model":"embedder","input":"a railway"}`,
			} {
				if a := (rig.Call{Path: path, Body: []byte(body)}).Do(c, s.Front); a.Status != 200 {
					t.Errorf("%s: %d %v %.300s", path, a.Status, a.Err, a.Body)
				}
			}
			if n := sample(t, em.address, "vllm:request_success_total"); n == 0 {
				t.Error("the engine has counted no request")
			}
		})
		t.Run("adapters", func(t *testing.T) { adapters(t, s, c) })
		t.Run("a client leaves", func(t *testing.T) {
			leave(t, s, func() float64 {
				return sample(t, v1.address, "vllm:num_requests_running") + sample(t, v2.address, "vllm:num_requests_running")
			})
		})
		s.Idle(s.Agent.Settled(rig.Pool))
	})
}

// templates sends chats whose prompt depends on more than their messages. The agent
// counts as many tokens as the engine.
func templates(t *testing.T, s *rig.Site, c *http.Client) {
	count := newCounted(s)
	for _, fields := range []string{
		`"tools":[{"type":"function","function":{"name":"look","description":"look up","parameters":{"type":"object","properties":{"what":{"type":"string"}}}}}],"tool_choice":"none"`,
		`"chat_template_kwargs":{"style":"as a pirate does"}`,
		`"reasoning_effort":"low"`,
		`"documents":[{"title":"points","text":"A railway has points."}]`,
		`"response_format":{"type":"json_object"}`,
		`"add_generation_prompt":false`,
		`"continue_final_message":true,"add_generation_prompt":false`,
		`"add_special_tokens":true`,
		`"n":2`,
	} {
		body := fmt.Appendf(nil, `{"model":%q,"max_tokens":2,"messages":[{"role":"user","content":"where is it?"},{"role":"assistant","content":"it is"}],%s}`, rig.Model, fields)
		u := usageOf(t, rig.Call{Body: body}.Do(c, s.Front))
		if got := count.next(t); !got.late && (!got.exact || got.tokens != u.Prompt) {
			t.Errorf("%s: the agent has %+v, the engine %d tokens", fields, got, u.Prompt)
		}
	}
}

// adapters sends requests for adapters, which only the engines have named.
func adapters(t *testing.T, s *rig.Site, c *http.Client) {
	for _, name := range []string{"sql", "bird"} {
		before := s.Agent.Settled(rig.Pool)
		for i := range 4 {
			body := fmt.Appendf(nil, `{"model":%q,"max_tokens":2,"ignore_eos":true,"prompt":"a query, number %d"}`, name, i)
			usageOf(t, rig.Call{Path: "/v1/completions", Body: body}.Do(c, s.Front))
		}
		rig.Eventually(t, time.Minute, "the outcomes are known", func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return p.Outcomes["served"] == before.Outcomes["served"]+4, fmt.Sprintf("%+v", p)
		})
		if p := s.Agent.Settled(rig.Pool); name == "bird" && p.Replica("v1").Served != before.Replica("v1").Served {
			t.Errorf("v1 was asked for the adapter that v2 has alone: %+v", p)
		}
	}
	body := []byte(`{"model":"nobody","prompt":"x"}`)
	if a := (rig.Call{Path: "/v1/completions", Body: body}).Do(c, s.Front); a.Status != http.StatusNotFound {
		t.Errorf("a model that nobody has: %d %.300s", a.Status, a.Body)
	}
}

// TestPrediction compares which part of each prompt the agent believes cached with what
// vLLM says, over conversations with adapters and salts, evictions, and a restart.
func TestPrediction(t *testing.T) {
	for i, r := range rig.Newest(t) {
		t.Run(r.Name, func(t *testing.T) {
			s, c := site(t, r, exactly, "", (*rig.Site).Patient), client(t)
			w := workload{site: s, client: c, block: vllmBlock, predicted: true}
			n, turns := 30, 5
			if i > 0 {
				n, turns = 8, 3 // the agent is the same
			}
			list := talks(n, turns, 130)
			for k := range list {
				u := &list[k]
				switch u.talk % 6 {
				case 1:
					u.model = "sql"
				case 2:
					u.model = "bird"
				case 3:
					u.fields = fmt.Sprintf(`"cache_salt":"salt %d",`, u.talk%2)
				}
			}
			half := len(list) / 2
			w.run(t, list[:half])
			v2 := fleet.list[1]
			v2.kill(t)
			v2.start(t)
			awaitHealth(t, v2.name, v2.address)
			s.AwaitState(v2.name, time.Minute, "up")
			found(t, s, 2, func(g rig.Signal) bool { return g.Age < 2 && g.Blocks != nil && g.Blocks.Online == 1 })
			w.run(t, list[half:])
			w.judge(t)
			for _, g := range s.Agent.Signals() {
				if g.Blocks != nil {
					t.Logf("%s: %+v", g.Replica, *g.Blocks)
				}
			}
		})
	}
}

// TestQueueing sends more requests than may run at a time: none is refused, no engine has
// more than it may.
func TestQueueing(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		s, c := site(t, r, "least_work", "max_requests: 2, admission: {wait: agent, bands: {all: {ttl: 10m}}},", (*rig.Site).Unhurried), client(t)
		done := make(chan struct{})
		var most float64
		var watching sync.WaitGroup
		watching.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
					for _, v := range fleet.list[:2] {
						most = max(most, sample(t, v.address, "vllm:num_requests_running")+sample(t, v.address, "vllm:num_requests_waiting"))
					}
				}
			}
		})
		var clients sync.WaitGroup
		for i := range 20 {
			clients.Go(func() {
				body := fmt.Appendf(nil, `{"model":%q,"max_tokens":20,"ignore_eos":true,"messages":[{"role":"user","content":"request %d of many"}]}`, rig.Model, i)
				if a := (rig.Call{Body: body}).Do(c, s.Front); a.Status != 200 || a.Err != nil {
					t.Errorf("%d %v %.300s", a.Status, a.Err, a.Body)
				}
			})
		}
		clients.Wait()
		close(done)
		watching.Wait()
		if most == 0 || most > 2 {
			t.Errorf("an engine had %v requests at a time, want 1 or 2", most)
		}
		s.Idle(s.Agent.Settled(rig.Pool))
	})
}

// TestCoreDies kills the core of a vLLM in mid-stream, under load. Two seconds later no
// request fails for it, and when the server has been started again, it serves.
func TestCoreDies(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		s, c := site(t, r, "least_requests", "", (*rig.Site).Patient), client(t)
		broken := begin(t, c, s.Front)
		var dies *vllm
		rig.Eventually(t, time.Minute, "the stream runs somewhere", func() (bool, string) {
			for _, v := range fleet.list[:2] {
				if sample(t, v.address, "vllm:num_requests_running") > 0 {
					dies = v
				}
			}
			return dies != nil, ""
		})
		quit := make(chan struct{})
		var clients sync.WaitGroup
		var mu sync.Mutex
		late, failed, answered := 0, 0, 0
		var last time.Duration // failure, after the death
		core := dies.core(t)
		killed := time.Now()
		killProcess(t, core)
		for range 2 {
			clients.Go(func() {
				for {
					select {
					case <-quit:
						return
					case <-time.After(20 * time.Millisecond):
					}
					a := rig.Call{Body: fmt.Appendf(nil, `{"model":%q,"max_tokens":1,"prompt":"hello"}`, rig.Model), Path: "/v1/completions"}.Do(c, s.Front)
					after := time.Since(killed)
					mu.Lock()
					if a.Status == http.StatusOK && a.Err == nil {
						answered++
					} else {
						failed, last = failed+1, after
						if after > 2*time.Second {
							if late++; late == 1 {
								t.Errorf("%v after the death a request fails with %d %v %.200s", after, a.Status, a.Err, a.Body)
							}
						}
					}
					mu.Unlock()
				}
			})
		}
		time.Sleep(6 * time.Second) // what is looked for is what does not happen
		close(quit)
		clients.Wait()
		// A proxy may try the server again that has ended with its core: it is refused,
		// and the request goes to another one.
		t.Logf("%d requests were answered; %d failed, the last %v after the death, %d of them late", answered, failed, last, late)
		for _, v := range fleet.list[:2] {
			if v != dies && !v.serves() {
				t.Errorf("the core of %s has died as well", v.name)
			}
		}
		if answered < 10 {
			t.Errorf("only %d requests were answered", answered)
		}
		if a := <-broken; !bytes.Contains(a.Body, []byte(`"error"`)) && a.Err == nil {
			t.Errorf("the stream ends with %d ...%s", a.Status, a.Body[max(0, len(a.Body)-300):])
		} else {
			t.Logf("the stream ends with status %d, %v: ...%s", a.Status, a.Err, strings.TrimSpace(string(a.Body[max(0, len(a.Body)-300):])))
		}
		dies.kill(t)
		dies.start(t)
		awaitHealth(t, dies.name, dies.address)
		s.AwaitState(dies.name, time.Minute, "up")
		served := s.Agent.Pool(rig.Pool).Replica(dies.name).Served
		rig.Eventually(t, time.Minute, dies.name+" serves again", func() (bool, string) {
			chat(t, s, c, "are you back?")
			p := s.Agent.Settled(rig.Pool)
			return p.Replica(dies.name).Served > served, fmt.Sprintf("%+v", p)
		})
	})
}

// TestBudget has the tokens come in the time that requests wait for them by default. It
// reports how many did; the others are served as well.
func TestBudget(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		s, c := site(t, r, "kv_aware", "", (*rig.Site).Patient), client(t)
		w := workload{site: s, client: c, block: vllmBlock}
		w.run(t, talks(30, 2, 60))
		w.judge(t)
		t.Logf("of %d first turns %d were tokenized within 10 ms", w.requests-w.prefix, w.exact)
	})
}

// TestReplay starts the agent anew while the engines are at work. By their replay it
// knows what they have cached before it has decided anything.
func TestReplay(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		s, c := site(t, r, exactly, "", (*rig.Site).Patient), client(t)
		list := talks(6, 2, 200)
		w := workload{site: s, client: c, block: vllmBlock, predicted: true}
		w.run(t, list[:6])
		s.Agent.Kill()
		s.Agent.Start()
		s.Proxy.AwaitAgent()
		found(t, s, 2, func(g rig.Signal) bool { return g.Blocks != nil && g.Blocks.Blocks > 0 })
		w.run(t, list[6:])
		w.judge(t)
		if w.cached*4 < w.prompt {
			t.Errorf("%d of %d tokens of the prompts were cached, want more than a quarter", w.cached, w.prompt)
		}
	})
}
