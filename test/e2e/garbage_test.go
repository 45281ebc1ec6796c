package e2e

import (
	"testing"

	"pointsman/test/rig"
)

// TestGarbage sends random bytes to the agent's sockets while good traffic goes
// on. Connections are lost by it, and nothing else.
func TestGarbage(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 3, "least_requests")
		s.Start()
		load := rig.StartTraffic(t, s.Front, 4)
		s.Decides(20)
		rounds := 150
		if rig.Soak {
			rounds = 20_000
		}
		s.Proxy.Garbage(rounds)
		s.Decides(30)
		n := load.Stop()

		p := s.Agent.Settled(rig.Pool)
		if p.Decisions != n || p.Outcomes["served"] != n || p.FellOpen != 0 {
			t.Errorf("%d requests: %+v", n, p)
		}
		m := s.Agent.Metrics()
		for _, series := range s.Proxy.CountsGarbage() {
			if m[series] == 0 {
				t.Errorf("%s counts no garbage", series)
			}
		}
		for _, series := range []string{"pointsman_spoe_panics_total", "pointsman_nginx_panics_total"} {
			if m[series] != 0 {
				t.Errorf("%s is %v", series, m[series])
			}
		}
		if rss := s.Agent.RSS(); rss > 256<<20 && !rig.Raced {
			t.Errorf("the agent takes %d MiB", rss>>20)
		}
	})
}
