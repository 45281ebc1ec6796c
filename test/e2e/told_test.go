package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestFeedCutOff has the proxy's log lines go to an address where nobody listens:
// status and one line of the log say so, and requests go on.
func TestFeedCutOff(t *testing.T) {
	onEach(t, newest(t), func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 2, "least_requests")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		s.serve(client, 4)
		eventually(t, 5*time.Second, "status shows the feed", func() (bool, string) {
			text := string(s.agent.run(nil, "status", "--once"))
			return strings.Contains(text, " ago ") && !strings.Contains(text, "unknown"), text
		})
		s.agent.kill()
		s.edit(s.feed, freeAddress(t))
		s.agent.start()
		s.proxy.awaitAgent()
		s.serve(client, 25)
		const line = "the proxy does not report what becomes of requests"
		eventually(t, 25*time.Second, "the log says that the feed is silent", func() (bool, string) {
			log := s.agent.log.String()
			return strings.Contains(log, line), log
		})
		text := string(s.agent.run(nil, "status", "--once"))
		if !strings.Contains(text, ": the feed ") || !strings.Contains(text, "never") {
			t.Errorf("status:\n%s", text)
		}
		s.serve(client, 4)
		time.Sleep(1500 * time.Millisecond) // longer than from one look to the next
		if n := strings.Count(s.agent.log.String(), line); n != 1 {
			t.Errorf("%d lines say so, want 1", n)
		}
	})
}
