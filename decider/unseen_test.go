package decider

import (
	"net/http"
	"testing"
)

// What names no model goes where the proxy would send it by itself: an engine
// may serve it or tell what is wrong. Only a name that no pool knows is refused.
func TestUnseenModel(t *testing.T) {
	d := New(new(testClock).tell, seeds())
	d.Apply(Config{Pools: []PoolConfig{
		{Name: "a", Models: []string{"x"}, Policy: Random{}, Replicas: replicas(1)},
		{Name: "b", Models: []string{"y"}, Policy: Random{}, Replicas: replicas(1)},
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
		var out Decision
		found := d.Read(&r, Input{Path: []byte("/v1/chat/completions"), Body: []byte(body), BodySize: 1 << 20}, &out)
		switch {
		case want == "" && (found || out.Status != http.StatusNotFound):
			t.Errorf("%s: found %t, status %d; want 404", body, found, out.Status)
		case want != "" && (!found || r.Pool.Name() != want):
			t.Errorf("%s: found %t, status %d (%s); want pool %s", body, found, out.Status, out.Reason, want)
		}
	}
}
