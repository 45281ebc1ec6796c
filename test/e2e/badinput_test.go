package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pointsman/test/rig"
)

// varying is what differs between two answers of an engine to one request.
var varying = regexp.MustCompile(`"(id|created|cached_tokens)":("[^"]*"|[0-9]+)`)

// TestBadInput sends what no client should. The client gets what the engine
// gives without us, and the agent neither dies nor grows.
func TestBadInput(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		e := rig.StartEngine(t, "r1", rig.EngineOptions{Models: []string{rig.Model, "other"}})
		other := rig.StartEngine(t, "o1", rig.EngineOptions{Models: []string{"other"}})
		s := rig.NewSite(t, r, fmt.Sprintf("pools:\n  %s: {models: [%s], replicas: %s}\n  second: {models: [other], replicas: %s}\n",
			rig.Pool, rig.Model, rig.ReplicasYAML(e), rig.ReplicasYAML(other)))
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()

		good := string(rig.Chat(rig.Model, 300, 3, false, 0))
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		z.Write([]byte(good))
		z.Close()
		const big = 10 << 20
		repeat := func(s string) []byte { return []byte(strings.Repeat(s, big/len(s))) }
		inputs := []struct {
			what string
			rig.Call
		}{
			{"no body", rig.Call{}},
			{"not JSON", rig.Call{Body: []byte("model=my-llama&prompt=hello")}},
			{"a lone brace", rig.Call{Body: []byte("{")}},
			{"a string", rig.Call{Body: []byte(`"model"`)}},
			{"an array", rig.Call{Body: []byte(`[{"model":"my-llama"}]`)}},
			{"zero bytes", rig.Call{Body: make([]byte, 1000)}},
			{"a byte order mark", rig.Call{Body: []byte("\xef\xbb\xbf" + good)}},
			{"two documents", rig.Call{Body: []byte(good + good)}},
			{"an unfinished document", rig.Call{Body: []byte(good[:len(good)-3])}},
			{"deep arrays", rig.Call{Body: []byte(`{"model":"my-llama","messages":` + strings.Repeat("[", 60_000))}},
			{"deep objects", rig.Call{Body: []byte(`{"model":"my-llama","x":` + strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000) + `}`)}},
			{"10 MB of quotes", rig.Call{Body: repeat(`"`)}},
			{"10 MB of escaped quotes", rig.Call{Body: repeat(`\"`)}},
			{"10 MB of backslashes in a string", rig.Call{Body: append([]byte(`{"model":"`), repeat(`\`)...), Chunked: true}},
			{"10 MB of brackets", rig.Call{Body: repeat("[")}},
			{"10 MB of short keys", rig.Call{Body: append([]byte("{"), repeat(`"a":1,`)...)}},
			{"a model of 10 MB", rig.Call{Body: append([]byte(`{"model":"`), repeat("m")...)}},
			{"wrong types", rig.Call{Body: []byte(`{"model":5,"messages":"hi","stream":"yes","max_tokens":"many","n":[1],"priority":{}}`)}},
			{"a model of null", rig.Call{Body: []byte(`{"model":null,"max_tokens":3,"messages":[{"role":"user","content":"hi"}]}`)}},
			{"no model", rig.Call{Body: []byte(`{"max_tokens":3,"messages":[{"role":"user","content":"hi"}]}`)}},
			{"wrong types in messages", rig.Call{Body: []byte(`{"model":"my-llama","messages":[1,null,"x",{"role":7,"content":{"a":[]}}]}`)}},
			{"huge numbers", rig.Call{Body: []byte(`{"model":"my-llama","max_tokens":1e999,"n":99999999999999999999,"priority":-1e30,"messages":[]}`)}},
			{"negative numbers", rig.Call{Body: []byte(`{"model":"my-llama","max_tokens":-5,"n":-1,"messages":[{"role":"user","content":"hi"}]}`)}},
			{"priorities out of range", rig.Call{Body: []byte(`{"model":"my-llama","max_tokens":3,"priority":-99999999,"messages":[{"role":"user","content":"hi"}]}`)}},
			{"invalid UTF-8", rig.Call{Body: []byte("{\"model\":\"my-llama\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\xc3\x28\"}]}")}},
			{"lone surrogates", rig.Call{Body: []byte(`{"model":"my-llama","max_tokens":3,"messages":[{"role":"user","content":"\ud800 \udc00\ud800"}]}`)}},
			{"an unfinished escape", rig.Call{Body: []byte(`{"model":"my-llama","messages":[{"role":"user","content":"\u12`)}},
			{"duplicate keys", rig.Call{Body: []byte(`{"model":"nobody","model":"my-llama","max_tokens":1,"max_tokens":3,"messages":[],"messages":[{"role":"user","content":"hi"}]}`)}},
			{"gzip", rig.Call{Body: zipped.Bytes(), Header: map[string]string{"Content-Encoding": "gzip"}}},
			{"a wrong content type", rig.Call{Body: []byte(good), Header: map[string]string{"Content-Type": "text/plain; charset=nonsense"}}},
			{"odd session headers", rig.Call{Body: []byte(good), Header: map[string]string{"X-Session-Id": strings.Repeat("\xff;,", 300)}}},
			{"many headers", rig.Call{Body: []byte(good), Header: manyHeaders(60)}},
			{"an unknown path", rig.Call{Path: "/v1/nonsense/" + strings.Repeat("a", 3000), Body: []byte(good)}},
			{"GET of a POST", rig.Call{Method: "GET", Path: rig.ChatPath}},
			{"another method", rig.Call{Method: "DELETE", Path: rig.ChatPath, Body: []byte(good)}},
			{"a completion of nothing", rig.Call{Path: "/v1/completions", Body: []byte(`{"model":"my-llama","prompt":[[],[-1],["a",2]]}`)}},
			{"embeddings of wrong types", rig.Call{Path: "/v1/embeddings", Body: []byte(`{"model":"my-llama","input":{"a":1}}`)}},
		}
		before := s.Agent.RSS()
		for _, in := range inputs {
			want := in.Call.Do(client, e.Address)
			if want.Err != nil {
				t.Errorf("%s: the engine itself: %v", in.what, want.Err)
				continue
			}
			for range 3 {
				got := in.Call.Do(client, s.Front)
				if got.Err != nil || got.Status != want.Status || got.Digest != want.Digest ||
					!bytes.Equal(varying.ReplaceAll(got.Body, nil), varying.ReplaceAll(want.Body, nil)) {
					t.Errorf("%s: through us %d %.300s (%v), body %.8s\n  the engine alone: %d %.300s, body %.8s", in.what,
						got.Status, got.Body, got.Err, got.Digest, want.Status, want.Body, want.Digest)
					break
				}
			}
		}
		const most = 256 << 20
		if after := s.Agent.RSS(); after > most && !rig.Raced {
			t.Errorf("the agent takes %d MiB, before the bad input %d", after>>20, before>>20)
		} else {
			t.Logf("the agent takes %d MiB, before %d", after>>20, before>>20)
		}
		// Good requests are served as before.
		for range 20 {
			c := rig.Small(true)
			if err := c.Check(c.Do(client, s.Front)); err != nil {
				t.Error(err)
			}
		}
		for p, want := range map[string]int{rig.Pool: 3, "second": 0} { // without a body there is nothing to ask
			if st := s.Agent.Settled(p); st.FellOpen != want {
				t.Errorf("pool %s: %d requests without a decision, want %d", p, st.FellOpen, want)
			}
		}
		s.Untroubled()
	})
}

func manyHeaders(n int) map[string]string {
	h := map[string]string{}
	for i := range n {
		h[fmt.Sprint("X-Filler-", i)] = strings.Repeat("v", 200)
	}
	return h
}
