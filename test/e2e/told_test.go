package e2e

import (
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestFeedCutOff has the proxy's log lines go to an address where nobody listens:
// status and one line of the log say so, and requests go on.
func TestFeedCutOff(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 2, "least_requests")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 4)
		rig.Eventually(t, 5*time.Second, "status shows the feed", func() (bool, string) {
			text := string(s.Agent.Run(nil, "status", "--once"))
			return strings.Contains(text, " ago ") && !strings.Contains(text, "unknown"), text
		})
		s.Agent.Kill()
		s.Edit(s.Feed, rig.FreeAddress(t))
		s.Agent.Start()
		s.Proxy.AwaitAgent()
		s.Serve(client, 25)
		const line = "the proxy does not report what becomes of requests"
		rig.Eventually(t, 25*time.Second, "the log says that the feed is silent", func() (bool, string) {
			log := s.Agent.Log.String()
			return strings.Contains(log, line), log
		})
		text := string(s.Agent.Run(nil, "status", "--once"))
		if !strings.Contains(text, ": the feed ") || !strings.Contains(text, "never") {
			t.Errorf("status:\n%s", text)
		}
		s.Serve(client, 4)
		time.Sleep(1500 * time.Millisecond) // longer than from one look to the next
		if n := strings.Count(s.Agent.Log.String(), line); n != 1 {
			t.Errorf("%d lines say so, want 1", n)
		}
	})
}
