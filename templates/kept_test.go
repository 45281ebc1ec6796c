package templates_test

import (
	"strings"
	"testing"

	"pointsman/templates"
)

// TestKept keeps connections only where a replica that refuses is down at once: where
// there is no other one, or HAProxy checks them. The user's own servers get new ones.
func TestKept(t *testing.T) {
	two := []templates.Replica{{Name: "r1", Address: "10.0.0.1:8000"}, {Name: "r2", Address: "10.0.0.2:8000"}}
	for name, c := range map[string]struct {
		allowed bool
		pool    templates.Pool
		kept    bool
	}{
		"checked":                   {true, templates.Pool{Replicas: two}, true},
		"unchecked":                 {true, templates.Pool{Replicas: two, HealthPath: "none"}, false},
		"one":                       {true, templates.Pool{Replicas: two[:1], HealthPath: "none"}, true},
		"at run time, by others":    {true, templates.Pool{}, false},
		"at run time, by the agent": {true, templates.Pool{Discovered: true}, true},
		"not allowed":               {false, templates.Pool{Replicas: two}, false},
	} {
		o := example(templates.Version{3, 2})
		c.pool.Name, c.pool.Models = "llama", []string{"llama"}
		o.Pools, o.RetrySent = []templates.Pool{c.pool}, c.allowed
		files, err := templates.RenderHAProxy(o)
		if err != nil {
			t.Fatal(name, err)
		}
		text := files[0].Text
		for _, kept := range []string{"retry-on conn-failure empty-response\n    option redispatch -1\n    retries 2\n", "set-var(txn.pm.own)"} {
			if strings.Contains(text, kept) != c.kept {
				t.Errorf("%s: %q is there: %v", name, kept, !c.kept)
			}
		}
		if strings.Contains(text, "option http-server-close") == c.kept {
			t.Errorf("%s: a new connection for each request: %v", name, c.kept)
		}
		place, err := templates.AttachInPlace(o)
		if err != nil {
			t.Fatal(name, err)
		}
		if text, err := place.Follow("llama", false); err != nil || !strings.Contains(text, "option http-server-close") || strings.Contains(text, "empty-response") {
			t.Errorf("%s, in the user's backend: %v\n%s", name, err, text)
		}
		if text, err := place.Follow("llama", true); err != nil || strings.Contains(text, "option http-server-close") || !strings.Contains(text, "empty-response") {
			t.Errorf("%s, kept in the user's backend: %v\n%s", name, err, text)
		}
	}
}
