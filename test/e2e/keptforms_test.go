package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// keptForm is a way in which a proxy gets the servers of a pool, whose connections it keeps.
type keptForm struct {
	name string
	only func(*testing.T) []rig.Release
	// lay lays out a site with n replicas, not started, and returns how to start it and the
	// name of an engine as a replica.
	lay func(t *testing.T, r rig.Release, n int, policy string) (s *rig.Site, engines []*rig.Engine, start func(), replica func(*rig.Engine) string)
}

var keptForms = []keptForm{
	{"listed", rig.Releases, listed},
	{"discovered", rig.HAProxies, discovered},
	{"attached", rig.HAProxies, attached},
}

// onKeptForms runs f on each form with each release that has it, and an ability.
func onKeptForms(t *testing.T, forms []keptForm, has func(rig.Abilities) bool, f func(t *testing.T, r rig.Release, form keptForm)) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			rig.OnEach(t, rig.That(form.only(t), has), func(t *testing.T, r rig.Release) {
				t.Parallel()
				f(t, r, form)
			})
		})
	}
}

// listed has the replicas in the agent's configuration, and so in the proxy's.
func listed(t *testing.T, r rig.Release, n int, policy string) (*rig.Site, []*rig.Engine, func(), func(*rig.Engine) string) {
	s, engines := rig.Replicas(t, r, n, policy)
	return s, engines, s.Start, func(e *rig.Engine) string { return e.Name }
}

// discovered has them in a file of targets, and the agent adds them to the proxy.
func discovered(t *testing.T, r rig.Release, n int, policy string) (*rig.Site, []*rig.Engine, func(), func(*rig.Engine) string) {
	var engines []*rig.Engine
	for i := range n {
		engines = append(engines, rig.StartEngine(t, fmt.Sprintf("r%d", i+1), rig.EngineOptions{Models: []string{rig.Model}}))
	}
	s, start := discoveredSite(t, r, policy, engines...)
	return s, engines, start, func(e *rig.Engine) string { return e.Address }
}

// attached has them in a backend of the user's, whose servers attach leaves as they are.
func attached(t *testing.T, r rig.Release, n int, policy string) (*rig.Site, []*rig.Engine, func(), func(*rig.Engine) string) {
	s, engines := rig.Replicas(t, r, n, policy)
	h := s.HAProxy()
	text := fmt.Sprintf("global\n    stats socket %s mode 660 level admin\ndefaults\n    mode http\n    timeout connect 1s\n    timeout client 60s\n    timeout server 60s\n"+
		"frontend web\n    bind %s\n    default_backend %s\nbackend %[3]s\n    balance leastconn\n    option httpchk GET /health\n", h.Runtime, s.Front, rig.Pool)
	for _, e := range engines {
		text += fmt.Sprintf("    server %s %s check inter 500ms\n", e.Name, e.Address)
	}
	dir := t.TempDir()
	own := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(own, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return s, engines, func() {
		t.Helper()
		said := attachCommand(s, "attach", "haproxy", "--haproxy-config", own, "--config", s.Config(), "--out", filepath.Join(s.Dir, "out"), "--write")
		if strings.Contains(said, "gets a new connection") {
			t.Errorf("attach: %s", said)
		}
		attachCommand(s, "check", "--config", s.Config(), "--haproxy-config", own)
		s.Agent.Start()
		h.Proc = proxies.StartIn(t, r.Bin, dir, "haproxy.cfg")
		h.AwaitAgent()
	}, func(e *rig.Engine) string { return e.Name }
}

func discoveredSite(t *testing.T, r rig.Release, policy string, engines ...*rig.Engine) (*rig.Site, func()) {
	file := filepath.Join(t.TempDir(), "targets.json")
	listTargets(t, file, engines...)
	s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: %s, max_requests: 0, discover: {file: %q, poll: 100ms}}}\n", rig.Pool, rig.Model, policy, file))
	return s, func() {
		t.Helper()
		s.Start()
		rig.Eventually(t, 20*time.Second, "HAProxy has the servers", func() (bool, string) {
			text, up := s.HAProxy().Command("show stat"), 0
			for _, e := range engines {
				if _, line, _ := strings.Cut(text, rig.Pool+","+e.Address+","); strings.Contains(strings.SplitN(line, "\n", 2)[0], ",UP,") {
					up++
				}
			}
			return up == len(engines), text
		})
	}
}
