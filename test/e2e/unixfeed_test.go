package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestUnixSockets has the feed on a unix socket, which no other local user can open.
// Outcomes arrive as they do over TCP, also those that HAProxy kept while the agent was
// away, and those of an HAProxy that was reloaded. The ring of HAProxy 3.0 would not
// connect again: there such a feed is refused.
func TestUnixSockets(t *testing.T) {
	rig.OnEach(t, rig.HAProxies(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 2, "round_robin")
		feed := filepath.Join(s.Dir, "feed.sock")
		s.Edit(fmt.Sprintf("feed: %q", s.Feed), fmt.Sprintf("feed: %q, socket_mode: \"0600\"", "unix://"+feed))
		if r.Version == "3.0" {
			if out, err := exec.Command(rig.Binary, "render", "haproxy", "--config", s.Config(), "--version", r.Version).CombinedOutput(); err == nil || !strings.Contains(string(out), "never connects again") {
				t.Errorf("%v: %s", err, out)
			}
			return
		}
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 20)
		p := s.Agent.Settled(rig.Pool)
		if p.Outcomes["served"] != 20 || p.Decisions != 20 || p.FellOpen != 0 {
			t.Errorf("%+v", p)
		}
		for _, name := range []string{feed, feed + ".datagrams"} {
			info, err := os.Stat(name)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", info, err)
			}
		}
		done := make(chan error, 1)
		go func() {
			c := rig.Held()
			done <- c.Check(c.Do(client, s.Front))
		}()
		rig.Eventually(t, 10*time.Second, "a request runs", func() (bool, string) { return engines[0].Holds()+engines[1].Holds() == 1, "" })
		s.Proxy.Reload()
		for _, e := range engines {
			e.Release()
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if p := s.Agent.Settled(rig.Pool); p.Outcomes["served"] != 21 {
			t.Errorf("after a reload: %+v", p)
		}
		if n := s.Agent.Metrics()[`pointsman_feed_recovered_total{proxy="haproxy"}`]; n != 1 {
			t.Errorf("%v ends came as datagrams only, want 1", n)
		}
		s.Agent.Kill()
		s.Serve(client, 5)
		s.Agent.Start()
		// Lines that were on their way when the agent ended are lost, as over TCP.
		rig.Eventually(t, 10*time.Second, "what HAProxy kept arrives", func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return p.Outcomes["served"] > 0, fmt.Sprint(p)
		})
		s.Proxy.AwaitAgent()
		s.Serve(client, 10)
		if p := s.Agent.Settled(rig.Pool); p.Outcomes["served"] < 11 || p.Outcomes["served"] > 15 {
			t.Errorf("%+v", p)
		}
	})
}
