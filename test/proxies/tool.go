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
	Missing(t, "no promtool on this machine; test/setup.sh brings it")
	return ""
}

// Missing skips a test that needs something which this machine lacks. With CI=true it
// fails the test: what test/setup.sh installs, the traces and the rights of root are there.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Tool returns the path of a program that a test runs. Without it the test is skipped,
// but with CI=true it fails: test/setup.sh installs it.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	Missing(t, "%s is missing; test/setup.sh installs it", name)
	return ""
}
