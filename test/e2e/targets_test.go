package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTargets takes replicas from a file that changes.
func TestTargets(t *testing.T) {
	everyProxy(t, func(t *testing.T, r release) {
		t.Parallel()
		targets(t, r)
	})
}

func targets(t *testing.T, r release) {
	o := engineOptions{Models: []string{model}}
	a, b := startEngine(t, "a", o), startEngine(t, "b", o)
	file := filepath.Join(t.TempDir(), "targets.json")
	list := func(engines ...*engine) { t.Helper(); listTargets(t, file, engines...) }
	list(a)
	s := newSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], policy: round_robin, discover: {file: %q, poll: 100ms}}}\n", pool, model, file))
	s.start()
	client := newClient(4, true, false)
	defer client.CloseIdleConnections()
	known := func(n int) {
		t.Helper()
		eventually(t, 5*time.Second, fmt.Sprint("replicas: ", n), func() (bool, string) {
			p := s.agent.pool(pool)
			return len(p.Replicas) == n, fmt.Sprintf("%+v", p)
		})
	}
	known(1)
	// The agent passes servers on to HAProxy a moment after it knows them.
	used := func(name string) {
		t.Helper()
		eventually(t, 5*time.Second, name+" is used", func() (bool, string) {
			a := small(false).do(client, s.front)
			return a.status == 200 && a.engine == name, fmt.Sprint(a.status, a.engine, a.err)
		})
	}
	used("a")
	if by := s.serve(client, 6); by["a"] != 6 {
		t.Errorf("served by %v", by)
	}
	list(a, b) // which no proxy has in its configuration
	known(2)
	used("b")
	if by := s.serve(client, 20); by["a"] == 0 || by["b"] == 0 {
		t.Errorf("served by %v", by)
	}
	list(b)
	known(1)
	if by := s.serve(client, 6); by["b"] != 6 {
		t.Errorf("served by %v", by)
	}
	if err := os.WriteFile(file, []byte(`[{"targets": `), 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the broken file is reported", func() (bool, string) {
		return strings.Contains(s.agent.log.String(), "the last ones stay"), s.agent.log.String()
	})
	if by := s.serve(client, 6); by["b"] != 6 {
		t.Errorf("with a broken file, served by %v", by)
	}
	if p := s.agent.settled(pool); p.Decisions != p.ended() {
		t.Errorf("%+v", p)
	}
}

// listTargets writes a file of targets that are engines, at once.
func listTargets(t *testing.T, file string, engines ...*engine) {
	t.Helper()
	names := []string{}
	for _, e := range engines {
		names = append(names, fmt.Sprintf("%q", e.address))
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
