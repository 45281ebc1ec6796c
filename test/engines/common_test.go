package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// usage is what an engine says of a request, in the form of any API.
type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Input   int `json:"input_tokens"`
	Output  int `json:"output_tokens"`
	Read    int `json:"cache_read_input_tokens"`
	Created int `json:"cache_creation_input_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	InputDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

// prompt is the number of tokens of the prompt. Anthropic's form counts those that were
// cached apart, and those that will be.
func (u usage) prompt() int { return u.Prompt + u.Input + u.Read + u.Created }

// usageOf is the usage in an answer that is no stream.
func usageOf(t testing.TB, a rig.Answer) usage {
	t.Helper()
	var body struct{ Usage *usage }
	if err := json.Unmarshal(a.Body, &body); a.Err != nil || a.Status != http.StatusOK || err != nil || body.Usage == nil {
		t.Fatalf("status %d, %v, %v: %.500s", a.Status, a.Err, err, a.Body)
	}
	return *body.Usage
}

// chat sends a chat of one message.
func chat(t testing.TB, s *rig.Site, client *http.Client, text string) usage {
	t.Helper()
	body := fmt.Appendf(nil, `{"model":%q,"max_tokens":2,"ignore_eos":true,"messages":[{"role":"user","content":%q}]}`, rig.Model, text)
	return usageOf(t, rig.Call{Body: body}.Do(client, s.Front))
}

// endless is a stream that only its client or its engine ends.
var endless = []byte(`{"model":"` + rig.Model + `","stream":true,"ignore_eos":true,"max_tokens":6000,"messages":[{"role":"user","content":"go on and on"}]}`)

// sample is a sample of an engine's metrics, those of all labels added up.
func sample(t testing.TB, address, name string) float64 {
	t.Helper()
	return labelled(t, address, name, "")
}

// labelled is sample with one of the labels, as they are written there.
func labelled(t testing.TB, address, name, label string) (sum float64) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return 0 // it is dead
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(page)) {
		if f := strings.Fields(line); len(f) == 2 && (f[0] == name || strings.HasPrefix(f[0], name+"{")) && strings.Contains(f[0], label) {
			v, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				t.Fatalf("%s: %q", address, line)
			}
			sum += v
		}
	}
	return sum
}

// found waits until the agent knows of n replicas what it should.
func found(t testing.TB, s *rig.Site, n int, good func(rig.Signal) bool) {
	t.Helper()
	rig.Eventually(t, time.Minute, "the agent knows its engines", func() (bool, string) {
		list, known := s.Agent.Signals(), 0
		for _, g := range list {
			if good(g) {
				known++
			}
		}
		return known == n, fmt.Sprintf("%+v", list)
	})
}

// counted reads what the agent counts of one request after the other.
type counted struct {
	site *rig.Site
	last map[string]float64
}

// seen is what the agent knew of a request.
type seen struct {
	tokens, cached int
	// How it knew the tokens: all of them, those of an earlier turn, or none in time.
	exact, prefix, late bool
}

func newCounted(s *rig.Site) *counted { return &counted{s, s.Agent.Metrics()} }

// next waits until the next request has ended.
func (c *counted) next(t testing.TB) seen {
	t.Helper()
	var now map[string]float64
	grown := func(name, labels string) int {
		key := name + "{" + labels + "}"
		return int(now[key] - c.last[key])
	}
	pool := fmt.Sprintf("pool=%q", rig.Pool)
	rig.Eventually(t, time.Minute, "the outcome is known", func() (bool, string) {
		now = c.site.Agent.Metrics()
		return grown("pointsman_outcomes_total", pool+`,end="served"`) > 0, ""
	})
	const source = "pointsman_tokenized_total"
	s := seen{
		tokens: grown("pointsman_prompt_tokens_total", pool), cached: grown("pointsman_prompt_cached_tokens_total", pool),
		exact:  grown(source, `source="engine"`)+grown(source, `source="exact"`)+grown(source, `source="ids"`) > 0,
		prefix: grown(source, `source="prefix"`) > 0,
		late:   grown("pointsman_untokenized_total", `reason="late"`) > 0,
	}
	c.last = now
	return s
}

// everyAPI sends a request in the form of each API, streamed and not. Where the agent
// has the tokens, it counts as many as the engine.
func everyAPI(t *testing.T, s *rig.Site, client *http.Client) {
	count := newCounted(s)
	for _, c := range []struct {
		path, fields, end string
		exact             bool
	}{
		{"/v1/chat/completions", `"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"what is a pointsman? 1, 2, 3"}]`, "[DONE]", true},
		{"/v1/completions", `"prompt":"The railway has two points, and a"`, "[DONE]", true},
		{"/v1/completions", `"prompt":[5,6,7,8,9,10,11,12]`, "[DONE]", true},
		{"/v1/responses", `"input":"hello there"`, "response.completed", true},
		{"/v1/messages", `"messages":[{"role":"user","content":"hello there"}]`, "message_stop", true},
	} {
		for _, stream := range []bool{false, true} {
			limit := "max_tokens"
			if strings.HasSuffix(c.path, "responses") {
				limit = "max_output_tokens"
			}
			body := fmt.Appendf(nil, `{"model":%q,"stream":%v,%q:3,%s}`, rig.Model, stream, limit, c.fields)
			a := rig.Call{Path: c.path, Body: body}.Do(client, s.Front)
			if a.Status != http.StatusOK || a.Err != nil {
				t.Fatalf("%s: %d %v %.500s", body, a.Status, a.Err, a.Body)
			}
			got := count.next(t)
			if stream {
				if !bytes.Contains(a.Body, []byte(c.end)) {
					t.Errorf("%s: the stream ends with ...%s", body, a.Body[max(0, len(a.Body)-200):])
				}
				continue
			}
			u := usageOf(t, a)
			if u.Prompt+u.Input == 0 {
				t.Errorf("%s: no usage in %s", body, a.Body)
			}
			if c.exact && !got.late && (!got.exact || got.tokens != u.prompt()) {
				t.Errorf("%s: the agent has %+v, the engine %d tokens", body, got, u.prompt())
			}
		}
	}
}

// begin sends an endless stream, and returns when its answer has begun: a replica that dies
// before that loses nothing, since another one gets the request. The channel gets the whole
// answer when it ends.
func begin(t *testing.T, client *http.Client, host string) <-chan rig.Answer {
	t.Helper()
	r, err := rig.Call{Body: endless}.Request(t.Context(), host, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	a := rig.Answer{Status: resp.StatusCode, Body: make([]byte, 1)}
	if _, err := io.ReadFull(resp.Body, a.Body); err != nil {
		t.Fatal(err)
	}
	ended := make(chan rig.Answer, 1)
	go func() {
		defer resp.Body.Close()
		var rest []byte
		rest, a.Err = io.ReadAll(resp.Body)
		a.Body = append(a.Body, rest...)
		ended <- a
	}()
	return ended
}

// leave has a client leave in mid-stream. The engine stops, and nothing stays reserved.
// busy is how many requests the engines have.
func leave(t *testing.T, s *rig.Site, busy func() float64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := rig.Call{Body: endless}.Request(ctx, s.Front, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := rig.NewClient(1, false, false)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, time.Minute, "the engine works on it", func() (bool, string) { return busy() > 0, "" })
	before := s.Agent.Pool(rig.Pool).Outcomes["client_gone"]
	cancel()
	rig.Eventually(t, time.Minute, "the engine has stopped", func() (bool, string) {
		n := busy()
		return n == 0, fmt.Sprint(n)
	})
	if p := s.Agent.Settled(rig.Pool); p.Outcomes["client_gone"] != before+1 {
		t.Errorf("the outcome is not that the client has gone: %+v", p)
	}
}
