package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGrid: every selected cell is run, and the summary names those lost.
func TestGrid(t *testing.T) {
	o := options{
		worlds: "embeddings", replicas: "2", loads: "0.5,0.9", caches: "200000", ours: "round_robin", rivals: "least_requests,random",
		profile: "8b", seeds: 1, csv: filepath.Join(t.TempDir(), "grid.csv"),
	}
	cells, err := o.run()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeCSV(o.csv, cells); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(o.csv)
	if lines := strings.Count(string(b), "\n"); err != nil || lines != 7 {
		t.Errorf("%d lines: %v\n%s", lines, err, b)
	}
	var md strings.Builder
	if err := writeMarkdown(&md, cells); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 cells, ", "| round_robin | embeddings, 2 × 200k, load 0.9 | ", " | least_requests | ", "| embeddings | 2 × 200k | 0.5 | least_requests | "} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("no %q in\n%s", want, &md)
		}
	}
}

func TestGridRefuses(t *testing.T) {
	for want, change := range map[string]func(*options){
		`unknown "mails"`: func(o *options) { o.worlds = "mails" },
		"want numbers":    func(o *options) { o.loads = "high" },
		`unknown "best"`:  func(o *options) { o.rivals = "best" },
		`unknown "9b"`:    func(o *options) { o.profile = "9b" },
	} {
		o := options{worlds: "chat", replicas: "2", loads: "1", caches: "200000", ours: "random", rivals: "random", profile: "8b", seeds: 1}
		change(&o)
		if _, err := o.run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want … %s …", err, want)
		}
	}
}
