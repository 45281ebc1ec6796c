package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUnixSockets has the feed on a unix socket, which no other local user can open. Outcomes arrive as they do over TCP, also those that HAProxy
// kept while the agent was away. The ring of HAProxy 3.0 would not connect again: there
// such a feed is refused.
func TestUnixSockets(t *testing.T) {
	onEach(t, haproxies(t), func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 2, "round_robin")
		feed := filepath.Join(s.dir, "feed.sock")
		s.edit(fmt.Sprintf("feed: %q", s.feed), fmt.Sprintf("feed: %q, socket_mode: \"0600\"", "unix://"+feed))
		if r.version == "3.0" {
			if out, err := exec.Command(binary, "render", "haproxy", "--config", s.config(), "--version", r.version).CombinedOutput(); err == nil || !strings.Contains(string(out), "never connects again") {
				t.Errorf("%v: %s", err, out)
			}
			return
		}
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		s.serve(client, 20)
		p := s.agent.settled(pool)
		if p.Outcomes["served"] != 20 || p.Decisions != 20 || p.FellOpen != 0 {
			t.Errorf("%+v", p)
		}
		info, err := os.Stat(feed)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
		s.agent.kill()
		s.serve(client, 5)
		s.agent.start()
		// Lines that were on their way when the agent ended are lost, as over TCP.
		eventually(t, 10*time.Second, "what HAProxy kept arrives", func() (bool, string) {
			p := s.agent.pool(pool)
			return p.Outcomes["served"] > 0, fmt.Sprint(p)
		})
		s.proxy.awaitAgent()
		s.serve(client, 10)
		if p := s.agent.settled(pool); p.Outcomes["served"] < 11 || p.Outcomes["served"] > 15 {
			t.Errorf("%+v", p)
		}
	})
}
