package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pointsman/test/rig"
)

// TestModels serves several models from two pools behind one address.
func TestModels(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		names := []string{"llama-70b", "my-alias", "qwen-7b", "canary", "redirected"}
		o := rig.EngineOptions{Models: names, LoRA: []string{"sql-adapter"}}
		l1, l2, q1 := rig.StartEngine(t, "l1", o), rig.StartEngine(t, "l2", o), rig.StartEngine(t, "q1", o)
		s := rig.NewSite(t, r, fmt.Sprintf(`
list_models: true
models:
  canary: {split: {llama: 90, qwen: 10}}
  redirected: qwen
pools:
  llama: {models: [llama-70b, my-alias], replicas: %s}
  qwen: {models: [qwen-7b], lora: [sql-adapter], replicas: %s}
`, rig.ReplicasYAML(l1, l2), rig.ReplicasYAML(q1)))
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()

		// send returns the pool whose engine served.
		send := func(c rig.Call) string {
			t.Helper()
			a := c.Do(client, s.Front)
			if err := c.Check(a); err != nil {
				t.Errorf("%.60s: %v", c.Body, err)
				return ""
			}
			return map[byte]string{'l': "llama", 'q': "qwen"}[a.Engine[0]]
		}
		late := func(model string) []byte {
			return fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q}],"max_tokens":1,"model":%q}`, rig.Fill(1_500_000, 0), model)
		}
		unseen := "llama" // the default pool serves a model that is beyond what the agent sees
		if r.Can.WholeBody {
			unseen = "qwen"
		}
		for _, c := range []struct {
			what string
			rig.Call
			pool string
		}{
			{"the model of the first pool", rig.Call{Body: rig.Chat("llama-70b", 300, 1, false, 0)}, "llama"},
			{"a second name", rig.Call{Body: rig.Chat("my-alias", 300, 1, true, 0)}, "llama"},
			{"the model of the second pool", rig.Call{Body: rig.Chat("qwen-7b", 300, 1, false, 0)}, "qwen"},
			{"a LoRA adapter", rig.Call{Body: rig.Chat("sql-adapter", 300, 1, true, 0)}, "qwen"},
			{"an alias of a pool", rig.Call{Body: rig.Chat("redirected", 300, 1, true, 0)}, "qwen"},
			{"the model after the messages", rig.Call{Body: []byte(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"model":"qwen-7b"}`)}, "qwen"},
			{"escapes in the model", rig.Call{Body: []byte(`{"model":"qw\u0065n-7b","messages":[{"role":"user","content":"hi"}],"max_tokens":1}`)}, "qwen"},
			{"a long body, model first", rig.Call{Body: rig.Chat("qwen-7b", 400_000, 1, false, 0)}, "qwen"},
			{"a long body, chunked", rig.Call{Body: rig.Chat("qwen-7b", 400_000, 1, false, 0), Chunked: true}, "qwen"},
			{"the model beyond what is seen, in a header", rig.Call{Body: late("qwen-7b"), Header: map[string]string{"X-Gateway-Model-Name": "qwen-7b"}}, "qwen"},
			{"an empty model", rig.Call{Body: []byte(`{"model":"","messages":[{"role":"user","content":"hi"}],"max_tokens":1}`)}, "llama"},
			{"no model", rig.Call{Body: []byte(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}`)}, "llama"},
			{"the model at the end of a long body", rig.Call{Body: late("qwen-7b")}, unseen},
			{"the model at the end of a long body, chunked", rig.Call{Body: late("qwen-7b"), Chunked: true}, unseen},
		} {
			for range 3 {
				if got := send(c.Call); got != c.pool {
					t.Errorf("%s: served by pool %q, want %q", c.what, got, c.pool)
				}
			}
		}
		want := 9.0 // three requests thrice
		if r.Can.WholeBody {
			want = 0
		}
		if n := s.Agent.Metrics()["pointsman_model_unseen_total"]; n != want {
			t.Errorf("pointsman_model_unseen_total is %v, want %v", n, want)
		}

		// listed are the models of GET /v1/models, and who listed them.
		listed := func() (names, by string) {
			a := rig.Call{Method: "GET", Path: "/v1/models"}.Do(client, s.Front)
			var list struct {
				Data []struct {
					ID string
					By string `json:"owned_by"`
				}
			}
			if err := json.Unmarshal(a.Body, &list); err != nil || a.Status != 200 || a.Header.Get("Content-Type") != "application/json" || len(list.Data) == 0 {
				t.Errorf("GET /v1/models: %d %v %s (%v, %v)", a.Status, a.Header, a.Body, a.Err, err)
				return "", ""
			}
			for _, m := range list.Data {
				names += m.ID + " "
			}
			return names, list.Data[0].By
		}
		for range 3 {
			if names, by := listed(); names != "llama-70b my-alias qwen-7b sql-adapter canary redirected " || by != "pointsman" {
				t.Errorf("%s lists %s", by, names)
			}
		}

		// Unknown models, some of them made to break out of the error's JSON.
		for _, name := range []string{"gpt-5", `a"b\\c`, "ü%[src]\u2028", strings.Repeat("x", 5000)} {
			quoted, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			c := rig.Call{Body: fmt.Appendf(nil, `{"model":%s,"messages":[{"role":"user","content":"hi"}]}`, quoted)}
			a := c.Do(client, s.Front)
			var e struct {
				Error struct {
					Message, Type, Param, Code string
				}
			}
			if err := json.Unmarshal(a.Body, &e); a.Status != 404 || err != nil || a.Header.Get("Content-Type") != "application/json" ||
				e.Error.Message == "" || e.Error.Type != "invalid_request_error" || e.Error.Param != "model" || e.Error.Code != "model_not_found" {
				t.Errorf("model %.20q: %d %v %s (%v)", name, a.Status, a.Header, a.Body, err)
			}
			if name == "gpt-5" && !strings.Contains(e.Error.Message, name) {
				t.Errorf("the refusal does not name %s: %s", name, e.Error.Message)
			}
		}

		// The split: of 300, the tenth is 30, and 8 or 60 come once in a million.
		by := map[string]int{}
		for range 300 {
			by[send(rig.Call{Body: rig.Chat("canary", 300, 1, false, 0)})]++
		}
		if by["qwen"] < 8 || by["qwen"] > 60 {
			t.Errorf("a split of 90 to 10 gave %v", by)
		}
		// A session stays on its branch, and sessions take both.
		branches := map[string]int{}
		for i := range 60 {
			c := rig.Call{Body: rig.Chat("canary", 300, 1, false, 0), Header: map[string]string{"X-Session-Id": fmt.Sprint("session ", i)}}
			first := send(c)
			branches[first]++
			for range 2 {
				if again := send(c); again != first {
					t.Errorf("session %d: %s, then %s", i, first, again)
				}
			}
		}
		if branches["llama"] < 30 || branches["qwen"] == 0 {
			t.Errorf("60 sessions on the branches: %v", branches)
		}
		for _, p := range []string{"llama", "qwen"} {
			st := s.Agent.Settled(p)
			if st.FellOpen != 0 || st.Outcomes["served"] != st.Decisions || st.Ended() != st.Decisions {
				t.Errorf("%+v", st)
			}
			s.Idle(st)
		}
		s.Untroubled()

		// The same without the agent: each model still reaches its pool, or the
		// default one of a proxy that does not read the model.
		s.Agent.Kill()
		if names, by := listed(); by != "vllm" || !strings.Contains(names, "sql-adapter") {
			t.Errorf("without an agent %s lists %s", by, names)
		}
		for model, want := range map[string]string{"llama-70b": "llama", "qwen-7b": "qwen", "sql-adapter": "qwen", "my-alias": "llama"} {
			if !r.Can.ReadsModel {
				want = "llama"
			}
			if got := send(rig.Call{Body: rig.Chat(model, 300, 1, false, 0)}); got != want {
				t.Errorf("without an agent, %s is served by pool %q, want %q", model, got, want)
			}
		}
	})
}
