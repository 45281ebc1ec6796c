// Package proxies runs real proxies in tests: the HAProxy and nginx releases that
// test/setup.sh brings onto the machine, on free ports of the loopback, printing
// their configuration and log only when the test fails.
package proxies

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"
)

// Binary is a proxy that can be run.
type Binary struct {
	Version string // the release line, for instance "3.2"
	argv    []string
}

// Command runs the binary with args. The caller starts it.
func (b Binary) Command(args ...string) *exec.Cmd {
	argv := append(append([]string{}, b.argv...), args...)
	return exec.Command(argv[0], argv[1:]...)
}

// suites are the Debian suites that test/setup.sh unpacks, with the HAProxy
// they carry.
var suites = []struct{ name, haproxy string }{{"trixie", "3.0"}, {"forky", "3.2"}}

// HAProxies returns the HAProxy in PATH (2.6 on Debian 12) and those that
// test/setup.sh unpacked. With CI=true a missing one fails the test; otherwise
// it is left out, and the test is skipped when none is left.
func HAProxies(t testing.TB) []Binary {
	t.Helper()
	var found []Binary
	add := func(what string, argv ...string) {
		v, err := version(argv)
		if err == nil {
			found = append(found, Binary{v, argv})
			return
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s does not run (%v); test/setup.sh installs it", what, err)
		}
		t.Logf("%s does not run (%v); test/setup.sh installs it", what, err)
	}
	add("haproxy in PATH", inPath("haproxy"))
	for _, s := range suites {
		add("haproxy "+s.haproxy+" of "+s.name, unpacked(s.name, "haproxy")...)
	}
	if len(found) == 0 {
		t.Skip("no haproxy on this machine; test/setup.sh installs it")
	}
	return found
}

// inPath finds a program in PATH, or in the folder that a plain user's PATH
// leaves out.
func inPath(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	return "/usr/sbin/" + name
}

// unpacked is the command line that runs a program of an unpacked suite through
// that suite's own loader.
func unpacked(suite, name string) []string {
	dir := filepath.Join(Cache(), suite)
	triplet, loader := "x86_64-linux-gnu", "ld-linux-x86-64.so.2"
	if runtime.GOARCH == "arm64" {
		triplet, loader = "aarch64-linux-gnu", "ld-linux-aarch64.so.1"
	}
	libs := filepath.Join(dir, "usr/lib", triplet)
	return []string{filepath.Join(libs, loader), "--library-path", libs, filepath.Join(dir, "usr/sbin", name)}
}

// Cache is the folder that test/setup.sh fills.
func Cache() string {
	if d := os.Getenv("POINTSMAN_CACHE"); d != "" {
		return d
	}
	if d := os.Getenv("XDG_CACHE_HOME"); d != "" {
		return filepath.Join(d, "pointsman")
	}
	return filepath.Join(os.Getenv("HOME"), ".cache/pointsman")
}

var versionPattern = regexp.MustCompile(`[0-9]+\.[0-9]+`)

// version asks the program for its release line.
func version(argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], "-v")...).CombinedOutput()
	return versionPattern.FindString(string(out)), err
}
