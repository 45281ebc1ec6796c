package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestTargets takes replicas from a file that changes.
func TestTargets(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		targets(t, r)
	})
}

func targets(t *testing.T, r rig.Release) {
	o := rig.EngineOptions{Models: []string{rig.Model}}
	a, b := rig.StartEngine(t, "a", o), rig.StartEngine(t, "b", o)
	file := filepath.Join(t.TempDir(), "targets.json")
	list := func(engines ...*rig.Engine) { t.Helper(); listTargets(t, file, engines...) }
	list(a)
	s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: round_robin, discover: {file: %q, poll: 100ms}}}\n", rig.Pool, rig.Model, file))
	s.Start()
	client := rig.NewClient(4, true, false)
	defer client.CloseIdleConnections()
	known := func(n int) {
		t.Helper()
		rig.Eventually(t, 5*time.Second, fmt.Sprint("replicas: ", n), func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return len(p.Replicas) == n, fmt.Sprintf("%+v", p)
		})
	}
	known(1)
	// The agent passes servers on to HAProxy a moment after it knows them.
	used := func(name string) {
		t.Helper()
		rig.Eventually(t, 5*time.Second, name+" is used", func() (bool, string) {
			a := rig.Small(false).Do(client, s.Front)
			return a.Status == 200 && a.Engine == name, fmt.Sprint(a.Status, a.Engine, a.Err)
		})
	}
	used("a")
	if by := s.Serve(client, 6); by["a"] != 6 {
		t.Errorf("served by %v", by)
	}
	list(a, b) // which no proxy has in its configuration
	known(2)
	used("b")
	if by := s.Serve(client, 20); by["a"] == 0 || by["b"] == 0 {
		t.Errorf("served by %v", by)
	}
	list(b)
	known(1)
	if by := s.Serve(client, 6); by["b"] != 6 {
		t.Errorf("served by %v", by)
	}
	if err := os.WriteFile(file, []byte(`[{"targets": `), 0o644); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, 5*time.Second, "the broken file is reported", func() (bool, string) {
		return strings.Contains(s.Agent.Log.String(), "the last ones stay"), s.Agent.Log.String()
	})
	if by := s.Serve(client, 6); by["b"] != 6 {
		t.Errorf("with a broken file, served by %v", by)
	}
	if p := s.Agent.Settled(rig.Pool); p.Decisions != p.Ended() {
		t.Errorf("%+v", p)
	}
}

// listTargets writes a file of targets that are engines, at once.
func listTargets(t *testing.T, file string, engines ...*rig.Engine) {
	t.Helper()
	names := []string{}
	for _, e := range engines {
		names = append(names, fmt.Sprintf("%q", e.Address))
	}
	text := "[]"
	if len(engines) > 0 {
		text = fmt.Sprintf(`[{"targets": [%s], "labels": {"zone": "z"}}]`, strings.Join(names, ","))
	}
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
