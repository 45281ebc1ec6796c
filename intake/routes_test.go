package intake

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/session"
)

// A request without a model goes where the proxy would send it by itself: an
// engine may serve it or say what is wrong. Only a name that no pool serves is
// refused.
func TestUnseenModel(t *testing.T) {
	in := newIntake()
	in.Apply(Config{Pools: []decider.PoolConfig{
		{Name: "a", Models: []string{"x"}, Policy: policy.Random{}, Replicas: replicas(1)},
		{Name: "b", Models: []string{"y"}, Policy: policy.Random{}, Replicas: replicas(1)},
	}})
	for body, want := range map[string]string{
		`{"model":"y"}`:                "b",
		`{"messages":[{"content":"cut`: "a",
		`{"model":""}`:                 "a",
		`{"model":5}`:                  "a",
		`{"prompt":"no model"}`:        "a",
		"\x1f\x8b\x08 gzip":            "a",
		"":                             "a",
		`{"model":"z"}`:                "",
	} {
		var r Request
		found := in.Read(&r, Input{Path: []byte("/v1/chat/completions"), Body: []byte(body), BodySize: 1 << 20})
		out := &r.Decision
		switch {
		case want == "" && (found || out.Status != http.StatusNotFound):
			t.Errorf("%s: found %t, status %d; want 404", body, found, out.Status)
		case want != "" && (!found || r.Pool.Name() != want):
			t.Errorf("%s: found %t, status %d (%s); want pool %s", body, found, out.Status, out.Reason, want)
		}
	}
}

// A weighted route splits sessions by its weights, and each stays on its branch.
func TestWeightedRoutes(t *testing.T) {
	in := newIntake()
	in.Apply(Config{
		Session: session.NewHeaders([]string{"x-session-id"}),
		Pools:   []decider.PoolConfig{pool("a", "m"), pool("b"), pool("c", "kept")},
		Routes: map[string][]Split{
			"m":    {{"a", 3}, {"b", 1}, {"none", 5}, {"c", 0}},
			"kept": {{"none", 1}}, // no branch is left: the pool's own models count
		},
	})
	counts := map[string]int{}
	for n := range 1000 {
		branch := ""
		for range 3 {
			var r Request
			if !in.Read(&r, Input{ID: fmt.Append(nil, "id", rand.Uint64()), Path: []byte(chat), Body: body("m", 5), Headers: fmt.Appendf(nil, "x-session-id: s%d\r\n", n)}) {
				t.Fatal(r.Decision)
			}
			if branch != "" && branch != r.Pool.Name() {
				t.Fatalf("session %d goes to %s and %s", n, branch, r.Pool.Name())
			}
			branch = r.Pool.Name()
		}
		counts[branch]++
	}
	if counts["a"] < 690 || counts["a"] > 810 || counts["a"]+counts["b"] != 1000 {
		t.Errorf("split %v, want 750 and 250", counts)
	}
	var r Request
	if !in.Read(&r, Input{Path: []byte(chat), Body: body("kept", 5)}) || r.Pool.Name() != "c" {
		t.Errorf("a route without branches: %+v", r.Request)
	}
}

// A single pool without models takes all of them, and a default pool what no
// route knows.
func TestOtherModels(t *testing.T) {
	in := newIntake()
	var r Request
	read := func(model string) string {
		r.Pool = nil
		if !in.Read(&r, Input{Path: []byte(chat), Body: body(model, 5)}) {
			return r.Decision.Why
		}
		return r.Pool.Name() + " " + r.Model
	}
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"no pool":           {Config{}, "unknown_model"},
		"one without names": {Config{Pools: []decider.PoolConfig{pool("a")}}, "a "},
		"one with names":    {Config{Pools: []decider.PoolConfig{pool("a", "m")}}, "unknown_model"},
		"two":               {Config{Pools: []decider.PoolConfig{pool("a"), pool("b")}}, "unknown_model"},
		"a default":         {Config{Pools: []decider.PoolConfig{pool("a", "m"), pool("b")}, DefaultPool: "b"}, "b "},
	} {
		in.Apply(c.config)
		if got := read("other"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if in.Stats().ModelUnknown != 3 {
		t.Errorf("%d unknown models counted", in.Stats().ModelUnknown)
	}
}

// Where the proxy has chosen the pool, the model is for records only.
func TestTheProxyChoosesThePool(t *testing.T) {
	in := newIntake()
	b := pool("b", "y")
	b.LoRA = []string{"sql"}
	in.Apply(Config{Pools: []decider.PoolConfig{pool("a", "x"), b}})
	in.Decider().Adapters(in.Decider().Pool("a"), "r0", []string{"listed"})
	for _, c := range []struct{ pool, model, want, known, lora string }{
		{"a", "x", "a", "x", ""},
		{"a", "y", "a", "y", ""},
		{"a", "sql", "a", "sql", "sql"},
		{"a", "listed", "a", "listed", "listed"},
		{"b", "listed", "b", "", ""},
		{"b", "none", "b", "", ""},
		{"gone", "x", "a", "x", ""},
	} {
		var r Request
		if !in.Read(&r, Input{Path: []byte(chat), Pool: []byte(c.pool), Body: body(c.model, 5)}) {
			t.Fatalf("%+v: %+v", c, r.Decision)
		}
		if r.Pool.Name() != c.want || r.Model != c.known || r.LoRA != c.lora || r.Fixed != (c.pool != "gone") {
			t.Errorf("%+v: pool %s, model %q, adapter %q, fixed %v", c, r.Pool.Name(), r.Model, r.LoRA, r.Fixed)
		}
	}
}

// The message of a 404 can stand in a JSON string as it is.
func TestUnknownModelMessage(t *testing.T) {
	for in, want := range map[string]string{
		"m":                      "The model 'm' does not exist.",
		"a\"b\\c\nd\x7f\xff":     "The model 'a?b?c?d??' does not exist.",
		strings.Repeat("ü", 100): "The model '" + strings.Repeat("ü", 64) + "...' does not exist.",
	} {
		if got := unknownModel([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
