package adversary

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pointsman/test/inject"
	"pointsman/test/rig"
)

// TestCollidingPrompts has a prompt served and asks what the agent believes to be cached
// of others: of one that XXH64 does not tell from it, whatever its seed, of the same one
// under another cache_salt, and of another tenant's. Of these nothing is cached, of the
// same one most of it.
func TestCollidingPrompts(t *testing.T) {
	one, other, ok := inject.Colliding()
	if !ok {
		t.Fatal("no such texts")
	}
	rig.OnEach(t, rig.Rotated(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 1, "least_work")
		s.Edit("max_requests: 0", "max_requests: 64, admission: {wait: agent, tenants: [x-tenant], separate_prefixes: true}")
		s.Unhurried()
		s.Start()
		client := rig.NewClient(1, true, false)
		defer client.CloseIdleConnections()
		body := func(pad int, text, salt string) []byte {
			return fmt.Appendf(nil, `{"model":%q,"max_tokens":2,"cache_salt":%q,"messages":[{"role":"user","content":"%s%s%s"}]}`,
				rig.Model, salt, strings.Repeat(" ", pad), text, rig.Fill(9000, 100*pad))
		}
		cached := func(body []byte, tenant string) int {
			t.Helper()
			var x struct {
				Candidates []struct {
					Cached *int `json:"cached_tokens"`
				} `json:"candidates"`
			}
			out := s.Agent.Run(body, "explain", "--json", "-H", "X-Tenant: "+tenant)
			if err := json.Unmarshal(out, &x); err != nil || len(x.Candidates) != 1 || x.Candidates[0].Cached == nil {
				t.Fatalf("explain: %v\n%s", err, out)
			}
			return *x.Candidates[0].Cached
		}
		pads := 4
		if rig.Soak {
			pads = 32
		}
		for pad := range pads { // a lane of XXH64 begins at each 32 bytes
			c := rig.Call{Body: body(pad*32/pads, one, "a"), Header: map[string]string{"X-Tenant": "ann"}}
			if err := c.Check(c.Do(client, s.Front)); err != nil {
				t.Fatal(err)
			}
			s.Agent.Settled(rig.Pool)
			if n := cached(c.Body, "ann"); n < 1000 {
				t.Fatalf("of the same prompt %d tokens are cached", n)
			}
			for what, n := range map[string]int{
				"a prompt that collides":     cached(body(pad*32/pads, other, "a"), "ann"),
				"the prompt, another salt":   cached(body(pad*32/pads, one, "b"), "ann"),
				"the prompt, another tenant": cached(c.Body, "joe"),
			} {
				if n != 0 {
					t.Errorf("%s, at %d: %d tokens are believed to be cached", what, pad, n)
				}
			}
		}
	})
}
