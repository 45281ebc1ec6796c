package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Binary is the pointsman under test.
var Binary string

// What the environment asks for. CoverDir is the folder into which each process
// writes its coverage when it exits; empty for none.
var (
	Soak     = os.Getenv("POINTSMAN_SOAK") == "1"
	Raced    = os.Getenv("POINTSMAN_RACE") == "1"
	CoverDir = os.Getenv("POINTSMAN_COVERDIR")
)

// Run builds the binary under test, runs the tests of m and returns their exit code.
func Run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pointsman-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	Binary = filepath.Join(dir, "pointsman")
	if err := build(Binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build builds the binary under test as the environment asks for.
func build(path string) error {
	args := []string{"build", "-o", path}
	env := os.Environ()
	if Raced {
		args = append(args, "-race")
		env = append(env, "CGO_ENABLED=1")
	}
	if CoverDir != "" {
		if !filepath.IsAbs(CoverDir) {
			return fmt.Errorf("POINTSMAN_COVERDIR=%s: want an absolute path", CoverDir)
		}
		if err := os.MkdirAll(CoverDir, 0o755); err != nil {
			return err
		}
		// For every process that the tests start.
		if err := os.Setenv("GOCOVERDIR", CoverDir); err != nil {
			return err
		}
		args = append(args, "-cover", "-coverpkg=pointsman/...")
	}
	cmd := exec.Command("go", append(args, "pointsman/cmd/pointsman")...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	return nil
}

// Eventually polls until holds does. It fails the test, with what was seen last,
// when that takes longer than most; the race detector gets four times as long.
// It is for the test's own goroutine.
func Eventually(t testing.TB, most time.Duration, what string, holds func() (bool, string)) {
	t.Helper()
	if Raced {
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
