package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// binary is the pointsman under test.
var binary string

// soak and raced tell what the environment asks for.
var (
	soak  = os.Getenv("POINTSMAN_SOAK") == "1"
	raced = os.Getenv("POINTSMAN_RACE") == "1"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pointsman-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "pointsman")
	args := []string{"build", "-o", binary}
	if raced {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "pointsman/cmd/pointsman")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "go build:", err)
		return 1
	}
	return m.Run()
}

// everyVersion runs f as a subtest for each HAProxy.
func everyVersion(t *testing.T, f func(t *testing.T, bin proxies.Binary)) {
	for _, bin := range proxies.HAProxies(t) {
		t.Run(bin.Version, func(t *testing.T) { f(t, bin) })
	}
}

// eventually polls until holds does. It fails the test, with what the last
// look saw, when that takes longer than most.
func eventually(t testing.TB, most time.Duration, what string, holds func() (bool, string)) {
	t.Helper()
	if raced {
		most *= 4
	}
	for deadline := time.Now().Add(most); ; time.Sleep(10 * time.Millisecond) {
		ok, seen := holds()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s; last seen: %s", most, what, seen)
		}
	}
}
