package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestAgentGone kills the agent under load. Once HAProxy has found it down, it asks nothing:
// HAProxy 2.6.12 would try half a million connections per second while requests wait for the
// agent.
func TestAgentGone(t *testing.T) {
	rig.OnEach(t, rig.HAProxies(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 3, "least_work")
		s.Start()
		load := rig.StartTraffic(t, s.Front, 12)
		for range 5 {
			s.Decides(50)
			s.Agent.Kill()
			before, tried := "", ""
			rig.Eventually(t, 20*time.Second, "HAProxy tries no connection to the agent", func() (bool, string) {
				before, tried = tried, connections(s)
				time.Sleep(300 * time.Millisecond)
				return tried == before, fmt.Sprintf("%s connections, then %s", before, tried)
			})
			load.Await(20)
			s.Agent.Start()
			s.Proxy.AwaitAgent()
		}
		load.Stop()
		s.Agent.Settled(rig.Pool)
	})
}

// connections is how many connections to the agent HAProxy has tried for requests.
func connections(s *rig.Site) string {
	for line := range strings.Lines(s.Proxy.(*rig.HAProxy).Command("show stat pointsman-agent 2 -1")) {
		if f := strings.Split(line, ","); len(f) > 7 && f[1] == "BACKEND" {
			return f[7]
		}
	}
	return ""
}
