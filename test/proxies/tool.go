package proxies

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Promtool is Prometheus' own checker of metrics and rules: the one in PATH, or that
// which test/setup.sh unpacked. Without it the test is skipped, and fails with
// CI=true.
func Promtool(t testing.TB) string {
	t.Helper()
	if p, err := exec.LookPath("promtool"); err == nil {
		return p
	}
	p := filepath.Join(Cache(), "promtool")
	if _, err := os.Stat(p); err == nil {
		return p
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("no promtool; test/setup.sh brings it")
	}
	t.Skip("no promtool on this machine; test/setup.sh brings it")
	return ""
}

// Tool returns the path of a program that a test runs. Without it the test is skipped,
// but with CI=true it fails: test/setup.sh installs it.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing; test/setup.sh installs it", name)
	}
	t.Skipf("%s is missing; test/setup.sh installs it", name)
	return ""
}
