package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The pages of the reference have what the program knows of itself.
func TestReference(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "reference")
	if _, err := run(t, "reference", dir); err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{
		"commands.md":  {"# Commands", "attach haproxy", "--haproxy-config", "simulate"},
		"keys.md":      {"| `listen.spoe` |", "| `pools.NAME.replicas.NAME.address` |", "| [session](../policies/session.md) | `load_bound` |"},
		"metrics.md":   {"| `pointsman_decisions_total` | counter |"},
		"variables.md": {"| `txn.pm.server` |", "- `POINTSMAN_SESSION_HEADER`: "},
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%.2000s", name, want, text)
			}
		}
	}
}

// What is in force is printed with defaults, and secrets are masked.
func TestConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pointsman.yaml")
	const text = "cluster: {name: prod, nats: \"nats://user:hunter2@10.0.0.9:4222\", secret_file: /etc/pointsman/cluster.secret}\npools: {llama: {models: [m], replicas: {r1: {address: \"10.0.0.1:8000\"}}}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "config", "-c", file)
	if err != nil || !strings.Contains(out, "least_work") || !strings.Contains(out, "10.0.0.1:8000") || strings.Contains(out, "hunter2") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run(t, "config", "--schema"); err != nil || !strings.Contains(out, "$schema") {
		t.Errorf("%v\n%.300s", err, out)
	}
	if _, err := run(t, "config", "-c", file+".absent"); err == nil {
		t.Error("a file that is absent is no error")
	}
}

// Without --write a patch is printed, and nothing is written.
func TestAttachPreview(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "haproxy.cfg")
	const text = "defaults\n    mode http\n    timeout connect 5s\n    timeout client 10m\n    timeout server 10m\n\nfrontend fe\n    bind 127.0.0.1:18080\n    default_backend be_llm\n\nbackend be_llm\n    server r1 127.0.0.1:18001\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "attach", "haproxy", "--haproxy-config", file, "--backend", "be_llm", "--config", filepath.Join(dir, "pointsman.yaml"), "--out", dir)
	if err != nil || !strings.Contains(out, "+++ ") || !strings.Contains(out, "send-spoe-group") {
		t.Errorf("%v\n%s", err, out)
	}
	after, err := os.ReadFile(file)
	if err != nil || string(after) != text {
		t.Errorf("%v: it was written:\n%s", err, after)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}
