package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestAgentGone kills the agent under load. Once HAProxy has found it down, it tries no
// connection to it: 2.6.12 tries half a million per second for questions that wait.
func TestAgentGone(t *testing.T) {
	rig.OnEach(t, rig.HAProxies(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 3, "least_work")
		s.Start()
		load := rig.StartTraffic(t, s.Front, 12)
		for range 5 {
			s.Decides(50)
			s.Agent.Kill()
			tried := ""
			rig.Eventually(t, 20*time.Second, "HAProxy tries no connection to the agent", func() (bool, string) {
				before := tried
				time.Sleep(300 * time.Millisecond)
				tried = questions(s)
				return tried == before, fmt.Sprintf("%s, then %s", before, tried)
			})
			load.Await(20)
			s.Agent.Start()
			s.Proxy.AwaitAgent()
		}
		load.Stop()
		s.Agent.Settled(rig.Pool)
	})
}

// questions is how many connections to the agent HAProxy has tried for questions.
func questions(s *rig.Site) string {
	s.T.Helper()
	stat := s.HAProxy().Command("show stat pointsman-agent 2 -1")
	for line := range strings.Lines(stat) {
		if f := strings.Split(line, ","); len(f) > 7 && f[1] == "BACKEND" {
			return f[7]
		}
	}
	s.T.Fatalf("HAProxy has no backend of the agent:\n%s", stat)
	return ""
}
