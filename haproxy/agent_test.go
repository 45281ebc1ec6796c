package haproxy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
	"pointsman/intake"
	"pointsman/link"
	"pointsman/spoa"
)

const chat = `{"model":"my-llama","messages":[{"role":"user","content":"hello"}]}`

// pools has the pool llama of two replicas and the pool code of one.
func pools(llama decider.PoolConfig) *intake.Intake {
	epoch := time.Now()
	in := intake.New(decider.New(func() time.Duration { return time.Since(epoch) }, func() uint64 { return 1 }))
	llama.Name, llama.Models, llama.Policy, llama.PolicyName = "llama", []string{"my-llama"}, &policy.RoundRobin{}, "round_robin"
	in.Apply(intake.Config{Pools: []decider.PoolConfig{llama,
		{Name: "code", Models: []string{"coder"}, Policy: &policy.RoundRobin{}, PolicyName: "round_robin", Replicas: []decider.ReplicaConfig{{Name: "c1"}}},
	}})
	return in
}

func rids(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", i) }

// finish ends a request on r1.
func finish(d *decider.Decider, i int) {
	d.Pool("llama").Finished(decider.Outcome{ID: decider.ParseID([]byte(rids(i))), Server: []byte("r1")})
}

func want(t *testing.T, what string, got map[string]string, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if v, ok := got[pairs[i]]; v != pairs[i+1] || ok != (pairs[i+1] != "") {
			t.Errorf("%s: %s = %q, want %q in %v", what, pairs[i], v, pairs[i+1], got)
		}
	}
}

// The arguments of the message decide, and the variables name the decision.
func TestDecisionOverSPOE(t *testing.T) {
	in := pools(decider.PoolConfig{Replicas: []decider.ReplicaConfig{{Name: "r1"}, {Name: "r2"}}})
	d, set := in.Decider(), metrics.NewSet()
	p := asked(t, NewAgent(in, &link.Link{}, 0, set).Handle)

	p.ask(1, "rid", rids(1), "path", "/v1/chat/completions", "body", chat)
	_, got := p.answer()
	want(t, "by model", got, "pool", "llama", "fallback2", "", "status", "", "prio", "", "band", "")
	if both := got["server"] + got["fallback1"]; both != "r1r2" && both != "r2r1" {
		t.Errorf("by model: %v", got)
	}
	if !d.Pool("llama").Holds(decider.ParseID([]byte(rids(1)))) {
		t.Error("nothing is reserved under HAProxy's id")
	}

	p.ask(2, "rid", rids(2), "path", "/v1/chat/completions", "head", `{"model":"coder","priority":9999,"messages":[`)
	_, got = p.answer()
	want(t, "by the head of a large body", got, "pool", "code", "server", "c1", "prio", "", "model", "coder")

	p.ask(3, "rid", rids(3), "path", "/v1/chat/completions", "pool", "code", "body", chat)
	_, got = p.answer()
	want(t, "by the pool that HAProxy fixed", got, "pool", "code", "server", "c1")

	// The body is cut before its model, which HAProxy found by itself.
	p.ask(4, "rid", rids(4), "path", "/v1/chat/completions", "model", "coder", "bsize", "9000", "blen", "30", "body", `{"messages":[{"role":"user","con`)
	_, got = p.answer()
	want(t, "by HAProxy's model", got, "pool", "code", "server", "c1")

	p.ask(5, "rid", rids(5), "path", "/v1/chat/completions", "body", `{"model":"nobody's","messages":[]}`)
	_, got = p.answer()
	want(t, "unknown model", got, "status", "404", "reason", "The model 'nobody's' does not exist.", "why", "unknown_model", "server", "", "pool", "")

	var page bytes.Buffer
	set.WritePrometheus(&page)
	if !strings.Contains(page.String(), `pointsman_decision_seconds_count{proxy="haproxy"} 5`) {
		t.Errorf("metrics:\n%s", page.String())
	}
}

// A request that must wait is answered when a replica has capacity, whatever
// arrives meanwhile: the answer depends on nothing of the message's memory.
func TestHeldOverSPOE(t *testing.T) {
	in := pools(decider.PoolConfig{
		Replicas:  []decider.ReplicaConfig{{Name: "r1", Limit: 1}},
		Admission: &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "all", TTL: time.Minute, MaxRequests: 1000}}},
	})
	d := in.Decider()
	p := asked(t, NewAgent(in, &link.Link{}, 0, metrics.NewSet()).Handle)
	ask := func(i int) { p.ask(byte(i), "rid", rids(i), "path", "/v1/chat/completions", "body", chat) }
	ask(1)
	if stream, got := p.answer(); stream != 1 || got["server"] != "r1" {
		t.Fatalf("stream %d: %v", stream, got)
	}
	const n = 20
	for i := 2; i < 2+n; i++ {
		ask(i)
		eventually(t, "it is held", func() bool { return d.Pool("llama").Status().Admission.Bands[0].Queued == i-1 })
	}
	for i := 2; i < 2+n; i++ {
		finish(d, i-1)
		stream, got := p.answer()
		if stream != byte(i) {
			t.Fatalf("stream %d is answered, want %d", stream, i)
		}
		want(t, "held", got, "pool", "llama", "server", "r1", "band", "all")
		if !d.Pool("llama").Holds(decider.ParseID([]byte(rids(i)))) {
			t.Fatalf("request %d is not reserved under its own id", i)
		}
	}

	// The end of the agent answers what still waits.
	ask(100)
	eventually(t, "it is held", func() bool { return d.Pool("llama").Status().Admission.Bands[0].Queued == 1 })
	d.Drain()
	if stream, _ := p.answer(); stream != 100 {
		t.Errorf("stream %d", stream)
	}
}

// Where HAProxy queues, the answer carries the place in the queue.
func TestPlaceInHAProxysQueue(t *testing.T) {
	in := pools(decider.PoolConfig{
		Replicas:  []decider.ReplicaConfig{{Name: "r1", Limit: 1}},
		Admission: &decider.Admission{Bands: []queue.Band{{Name: "all", TTL: time.Minute, MaxRequests: 1000}}},
	})
	p := asked(t, NewAgent(in, &link.Link{}, 0, metrics.NewSet()).Handle)
	for i := 1; i <= 2; i++ {
		p.ask(byte(i), "rid", rids(i), "path", "/v1/chat/completions", "body", chat)
		_, got := p.answer()
		want(t, "queued by HAProxy", got, "server", "r1", "band", "all")
		if got["prio"] == "" || got["offset"] == "" {
			t.Errorf("no place in the queue: %v", got)
		}
	}
}

// Questions show what is wrong with HAProxy's configuration: the third sign of a
// fault is one.
func TestSignsOfFaults(t *testing.T) {
	k := &link.Link{Proxy: "haproxy"}
	a := NewAgent(pools(decider.PoolConfig{Replicas: []decider.ReplicaConfig{{Name: "r1"}}}), k, 128<<10, metrics.NewSet())
	p := asked(t, a.Handle)
	for i := range byte(3) {
		p.ask(i, "path", "/v1/chat/completions", "body", chat)
		p.answer()
		if found := k.Status(time.Now()).Faults; (len(found) > 0) != (i == 2) {
			t.Errorf("%d questions without an id: %v", i+1, found)
		}
	}
	for _, in := range []intake.Input{
		{ID: []byte(rids(1)), Body: make([]byte, 300), BodySize: 300},
		{ID: []byte(rids(1)), Body: make([]byte, 100_000), BodySize: 900_000}, // a full buffer
		{ID: []byte(rids(1)), Body: make([]byte, 300), BodySize: 100_000},
		{ID: []byte(rids(1)), Body: make([]byte, 300), BodySize: 400},
		{ID: []byte(rids(1)), BodySize: 400},
	} {
		a.examine(&in)
	}
	if found := k.Status(time.Now()).Faults; len(found) != 2 || found[1].Fault != "cut" || found[1].Count != 3 {
		t.Errorf("bodies cut although there was room: %v", found)
	}
}

// Head and tail that are all of a body are read as one; of a longer one they stay
// apart. A prompt that runs from one into the other is not cut.
func TestHeadAndTail(t *testing.T) {
	in := pools(decider.PoolConfig{Replicas: []decider.ReplicaConfig{{Name: "r1"}}})
	var got intake.Request
	a := NewAgent(in, &link.Link{}, 0, metrics.NewSet())
	p := asked(t, func(m *spoa.Message, w *spoa.Reply) {
		i := a.input(m)
		if in.Read(&got, i) {
			w.SetString("model", got.Model+string(i.Model))
		}
	})
	long := strings.Repeat("a prompt of many words ", 60)
	body := `{"model":"my-llama","messages":[{"role":"user","content":"` + long + `"}],"max_tokens":77}`
	for _, c := range []struct {
		name      string
		from, to  int // where the tail begins, and the head ends
		size      int
		cut       bool
		textBytes int
	}{
		{"all of it", 800, 800, len(body), false, len(long)},
		{"a part is missing", 900, 800, len(body), true, 0},
		{"longer", 800, 800, len(body) + 1, true, 0},
	} {
		p.ask(1, "rid", rids(1), "path", "/v1/chat/completions", "bsize", strconv.Itoa(c.size), "head", body[:c.to], "tail", body[c.from:], "model", "+seen")
		if _, vars := p.answer(); vars["model"] != "my-llama+seen" {
			t.Errorf("%s: %v", c.name, vars)
		}
		if got.Cut != c.cut || c.textBytes > 0 && got.TextBytes < c.textBytes {
			t.Errorf("%s: cut %v, %d bytes of text", c.name, got.Cut, got.TextBytes)
		}
	}
}
