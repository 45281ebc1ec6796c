package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// varying is what differs between two answers of an engine to one request.
var varying = regexp.MustCompile(`"(id|created|cached_tokens)":("[^"]*"|[0-9]+)`)

// TestBadInput sends what no client should. The client gets what the engine
// gives without us, and the agent neither dies nor grows.
func TestBadInput(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		e := startEngine(t, "r1", engineOptions{Models: []string{model, "other"}})
		other := startEngine(t, "o1", engineOptions{Models: []string{"other"}})
		s := newSite(t, r, fmt.Sprintf("pools:\n  %s: {models: [%s], replicas: %s}\n  second: {models: [other], replicas: %s}\n",
			pool, model, replicasYAML(e), replicasYAML(other)))
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()

		good := string(chat(model, 300, 3, false, 0))
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		z.Write([]byte(good))
		z.Close()
		const big = 10 << 20
		repeat := func(s string) []byte { return []byte(strings.Repeat(s, big/len(s))) }
		inputs := []struct {
			what string
			call
		}{
			{"no body", call{}},
			{"not JSON", call{body: []byte("model=my-llama&prompt=hello")}},
			{"a lone brace", call{body: []byte("{")}},
			{"a string", call{body: []byte(`"model"`)}},
			{"an array", call{body: []byte(`[{"model":"my-llama"}]`)}},
			{"zero bytes", call{body: make([]byte, 1000)}},
			{"a byte order mark", call{body: []byte("\xef\xbb\xbf" + good)}},
			{"two documents", call{body: []byte(good + good)}},
			{"an unfinished document", call{body: []byte(good[:len(good)-3])}},
			{"deep arrays", call{body: []byte(`{"model":"my-llama","messages":` + strings.Repeat("[", 60_000))}},
			{"deep objects", call{body: []byte(`{"model":"my-llama","x":` + strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000) + `}`)}},
			{"10 MB of quotes", call{body: repeat(`"`)}},
			{"10 MB of escaped quotes", call{body: repeat(`\"`)}},
			{"10 MB of backslashes in a string", call{body: append([]byte(`{"model":"`), repeat(`\`)...), chunked: true}},
			{"10 MB of brackets", call{body: repeat("[")}},
			{"10 MB of short keys", call{body: append([]byte("{"), repeat(`"a":1,`)...)}},
			{"a model of 10 MB", call{body: append([]byte(`{"model":"`), repeat("m")...)}},
			{"wrong types", call{body: []byte(`{"model":5,"messages":"hi","stream":"yes","max_tokens":"many","n":[1],"priority":{}}`)}},
			{"a model of null", call{body: []byte(`{"model":null,"max_tokens":3,"messages":[{"role":"user","content":"hi"}]}`)}},
			{"no model", call{body: []byte(`{"max_tokens":3,"messages":[{"role":"user","content":"hi"}]}`)}},
			{"wrong types in messages", call{body: []byte(`{"model":"my-llama","messages":[1,null,"x",{"role":7,"content":{"a":[]}}]}`)}},
			{"huge numbers", call{body: []byte(`{"model":"my-llama","max_tokens":1e999,"n":99999999999999999999,"priority":-1e30,"messages":[]}`)}},
			{"negative numbers", call{body: []byte(`{"model":"my-llama","max_tokens":-5,"n":-1,"messages":[{"role":"user","content":"hi"}]}`)}},
			{"priorities out of range", call{body: []byte(`{"model":"my-llama","max_tokens":3,"priority":-99999999,"messages":[{"role":"user","content":"hi"}]}`)}},
			{"invalid UTF-8", call{body: []byte("{\"model\":\"my-llama\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\xc3\x28\"}]}")}},
			{"lone surrogates", call{body: []byte(`{"model":"my-llama","max_tokens":3,"messages":[{"role":"user","content":"\ud800 \udc00\ud800"}]}`)}},
			{"an unfinished escape", call{body: []byte(`{"model":"my-llama","messages":[{"role":"user","content":"\u12`)}},
			{"duplicate keys", call{body: []byte(`{"model":"nobody","model":"my-llama","max_tokens":1,"max_tokens":3,"messages":[],"messages":[{"role":"user","content":"hi"}]}`)}},
			{"gzip", call{body: zipped.Bytes(), header: map[string]string{"Content-Encoding": "gzip"}}},
			{"a wrong content type", call{body: []byte(good), header: map[string]string{"Content-Type": "text/plain; charset=nonsense"}}},
			{"odd session headers", call{body: []byte(good), header: map[string]string{"X-Session-Id": strings.Repeat("\xff;,", 300)}}},
			{"many headers", call{body: []byte(good), header: manyHeaders(60)}},
			{"an unknown path", call{path: "/v1/nonsense/" + strings.Repeat("a", 3000), body: []byte(good)}},
			{"GET of a POST", call{method: "GET", path: chatPath}},
			{"another method", call{method: "DELETE", path: chatPath, body: []byte(good)}},
			{"a completion of nothing", call{path: "/v1/completions", body: []byte(`{"model":"my-llama","prompt":[[],[-1],["a",2]]}`)}},
			{"embeddings of wrong types", call{path: "/v1/embeddings", body: []byte(`{"model":"my-llama","input":{"a":1}}`)}},
		}
		before := s.agent.rss()
		for _, in := range inputs {
			want := in.call.do(client, e.address)
			if want.err != nil {
				t.Errorf("%s: the engine itself: %v", in.what, want.err)
				continue
			}
			for range 3 {
				got := in.call.do(client, s.front)
				if got.err != nil || got.status != want.status || got.digest != want.digest ||
					!bytes.Equal(varying.ReplaceAll(got.body, nil), varying.ReplaceAll(want.body, nil)) {
					t.Errorf("%s: through us %d %.300s (%v), body %.8s\n  the engine alone: %d %.300s, body %.8s", in.what,
						got.status, got.body, got.err, got.digest, want.status, want.body, want.digest)
					break
				}
			}
		}
		const most = 256 << 20
		if after := s.agent.rss(); after > most && !raced {
			t.Errorf("the agent takes %d MiB, before the bad input %d", after>>20, before>>20)
		} else {
			t.Logf("the agent takes %d MiB, before %d", after>>20, before>>20)
		}
		// Good requests are served as before.
		for range 20 {
			c := small(true)
			if err := c.check(c.do(client, s.front)); err != nil {
				t.Error(err)
			}
		}
		for p, want := range map[string]int{pool: 3, "second": 0} { // without a body there is nothing to ask
			if st := s.agent.settled(p); st.FellOpen != want {
				t.Errorf("pool %s: %d requests without a decision, want %d", p, st.FellOpen, want)
			}
		}
		s.untroubled()
	})
}

func manyHeaders(n int) map[string]string {
	h := map[string]string{}
	for i := range n {
		h[fmt.Sprint("X-Filler-", i)] = strings.Repeat("v", 200)
	}
	return h
}
