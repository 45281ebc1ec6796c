package e2e

import (
	"fmt"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestBothProxies serves an HAProxy and an nginx with one agent. Both see the
// same replicas: what one of them learns holds for the other.
func TestBothProxies(t *testing.T) {
	others := rig.HAProxies(t)
	for i, r := range rig.Nginxes(t) {
		other := others[min(i, len(others)-1)]
		t.Run(r.Name+"+"+other.Name, func(t *testing.T) {
			t.Parallel()
			n, engines := rig.Replicas(t, r, 3, "round_robin")
			h := rig.NewFront(t, other, n.Dir)
			h.Agent, h.Feed = n.Agent, n.Feed
			n.Edit("spoe: off", h.Proxy.Listen())
			n.Edit("pools:", h.Proxy.Section()+"\npools:")
			n.Start()
			h.Proxy.Start()
			h.Proxy.AwaitAgent()
			byNginx, byHAProxy := rig.StartTraffic(t, n.Front, 4), rig.StartTraffic(t, h.Front, 4)
			byNginx.Await(100)
			byHAProxy.Await(100)

			// What HAProxy's checks and its runtime API say holds for nginx too.
			client := rig.NewClient(2, true, false)
			defer client.CloseIdleConnections()
			h.HAProxy().State("r1", "drain")
			h.AwaitState("r1", 5*time.Second, "draining")
			total := byNginx.Stop() + byHAProxy.Stop()
			if by := n.Serve(client, 10); by["r1"] != 0 {
				t.Errorf("drained at HAProxy, nginx sent it %d of 10", by["r1"])
			}
			h.HAProxy().State("r1", "ready")
			h.AwaitState("r1", 5*time.Second, "up")
			// And what nginx meets holds for HAProxy, for as long as it lasts.
			sent := 10
			for try := 1; ; try++ {
				if try > attempts {
					t.Fatal("the ejection was never seen")
				}
				rig.Fault(t, engines[1], `{"die_after":3,"count":1}`)
				sent += n.Hit(client, rig.Small(true), engines[1], func(a rig.Answer) bool { return a.Err != nil })
				rig.Eventually(t, 5*time.Second, "the failure is counted", func() (bool, string) {
					p := n.Agent.Pool(rig.Pool)
					return p.Outcomes["died"] == try, fmt.Sprint(p)
				})
				more, seen := h.Spared(client, "r2", rig.Ejected, 6)
				if sent += more; seen {
					break
				}
			}
			p := n.Agent.Settled(rig.Pool)
			n.Idle(p)
			if want := total + sent; p.Decisions != want || p.Ended() != want {
				t.Errorf("%d requests: %d decisions, outcomes %v", want, p.Decisions, p.Outcomes)
			}
			n.Untroubled()
			h.Untroubled()
		})
	}
}

// attempts is how often a test tries to see what may be over before it looks.
const attempts = 10
