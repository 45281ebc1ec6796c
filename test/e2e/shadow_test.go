package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// shadowStatus is what the test reads of a pool in /status.
type shadowStatus struct {
	Requests int     `json:"requests"`
	Compared int     `json:"compared"`
	Chosen   float64 `json:"hit_rate_chosen"`
	Served   float64 `json:"hit_rate_served"`
	TTFT     float64 `json:"ttft_chosen_s"`
}

func shadowOf(t *testing.T, s *rig.Site) (st shadowStatus) {
	t.Helper()
	b, err := s.Agent.Get("/status")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Pools []struct {
			Shadow *shadowStatus `json:"shadow"`
		} `json:"pools"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if all.Pools[0].Shadow != nil {
		st = *all.Pools[0].Shadow
	}
	return st
}

// TestShadow runs conversations past an agent in shadow: the proxy keeps its own
// balance, and the agent says what would have been better. Then the mode is switched,
// without touching the proxy.
func TestShadow(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 3, "least_work", "mode: shadow")
		s.Patient()
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		const conversations, turns = 4, 6
		talk := func(from int) (moved int) {
			t.Helper()
			last := map[int]string{}
			for turn := range turns {
				for n := range conversations {
					text := fmt.Sprintf("conversation %d: ", from+n) + rig.Fill(6000+500*turn, from+10_000*n)
					c := rig.Call{Body: fmt.Appendf(nil, `{"model":%q,"max_tokens":4,"stream":true,"messages":[{"role":"user","content":%q}]}`, rig.Model, text)}
					a := c.Do(client, s.Front)
					if err := c.Check(a); err != nil {
						t.Fatal(err)
					}
					if turn > 0 && last[n] != a.Engine {
						moved++
					}
					last[n] = a.Engine
				}
			}
			return moved
		}
		asked := s.Agent.Pool(rig.Pool).Decisions
		if moved := talk(0); moved < turns {
			t.Errorf("conversations moved %d times: this is not the proxy's own balance", moved)
		}
		const n = conversations * turns
		var st shadowStatus
		rig.Eventually(t, 20*time.Second, "all requests are compared", func() (bool, string) {
			st = shadowOf(t, s)
			p := s.Agent.Settled(rig.Pool)
			return st.Requests >= asked+n && p.Decisions == asked+n, fmt.Sprintf("%+v of %+v", st, p)
		})
		if st.Compared < n || st.Chosen < st.Served+0.1 || st.Chosen < 0.5 || st.TTFT <= 0 {
			t.Errorf("compared as %+v", st)
		}
		if p := s.Agent.Pool(rig.Pool); p.FellOpen != 0 || p.Replica("r1").Served+p.Replica("r2").Served+p.Replica("r3").Served < n {
			t.Errorf("%+v", p)
		}
		text := string(s.Agent.Run(nil, "status", "--once"))
		for _, want := range []string{"  shadow: the proxy balances by itself; ", "    hit rate expected: ", "    TTFT expected, mean: "} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		s.Untroubled()

		// With "decide", new conversations stay where they are cached.
		s.Edit("mode: shadow", "mode: decide")
		s.ReloadAgent()
		if moved := talk(100_000); moved > conversations {
			t.Errorf("with mode: decide conversations moved %d times", moved)
		}
		if st := shadowOf(t, s); st.Requests != 0 {
			t.Errorf("the status still compares: %+v", st)
		}

		// With a share, sessions are decided or not, and the others are compared.
		s.Edit("mode: decide", "mode: 50%")
		s.ReloadAgent()
		before, after := shadowOf(t, s), shadowStatus{}
		const sessions = 40
		for n := range sessions {
			c := rig.Small(true)
			c.Header = map[string]string{"X-Session-Id": fmt.Sprint("session-", n)}
			if err := c.Check(c.Do(client, s.Front)); err != nil {
				t.Fatal(err)
			}
		}
		rig.Eventually(t, 20*time.Second, "some sessions are left to the proxy", func() (bool, string) {
			after = shadowOf(t, s)
			n := after.Requests - before.Requests
			return n >= 5 && n <= sessions-5, fmt.Sprintf("%+v, before %+v", after, before)
		})
		s.Agent.Settled(rig.Pool)
	})
}
