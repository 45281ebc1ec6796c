package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// binary is the pointsman under test.
var binary string

// What the environment asks for. coverDir is the folder into which each process
// writes its coverage when it exits; empty for none.
var (
	soak     = os.Getenv("POINTSMAN_SOAK") == "1"
	raced    = os.Getenv("POINTSMAN_RACE") == "1"
	coverDir = os.Getenv("POINTSMAN_COVERDIR")
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
	if err := build(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build builds the binary under test as the environment asks for.
func build(path string) error {
	args := []string{"build", "-o", path}
	env := os.Environ()
	if raced {
		args = append(args, "-race")
		env = append(env, "CGO_ENABLED=1")
	}
	if coverDir != "" {
		if !filepath.IsAbs(coverDir) {
			return fmt.Errorf("POINTSMAN_COVERDIR=%s: want an absolute path", coverDir)
		}
		if err := os.MkdirAll(coverDir, 0o755); err != nil {
			return err
		}
		os.Setenv("GOCOVERDIR", coverDir) // for every process that the tests start
		args = append(args, "-cover", "-coverpkg=pointsman/...")
	}
	cmd := exec.Command("go", append(args, "pointsman/cmd/pointsman")...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	return nil
}

// eventually polls until holds does. It fails the test, with what was seen last,
// when that takes longer than most; the race detector gets four times as long.
// It is for the test's own goroutine.
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
