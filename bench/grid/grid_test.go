package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/sim/workload"
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
	b, err := os.ReadFile(o.csv)
	if lines := strings.Count(string(b), "\n"); err != nil || lines != 7 {
		t.Errorf("%d lines: %v\n%s", lines, err, b)
	}
	var md strings.Builder
	if err := writeMarkdown(&md, cells); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 cells, ", "| round_robin | embeddings, 2 × 200k, load 0.9, seed 1 | ", " | least_requests | ", "| embeddings | 2 × 200k | 0.5 | 1 | least_requests | "} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("no %q in\n%s", want, &md)
		}
	}
}

// The committed list holds cells of all worlds; those of the trace need it.
func TestCellsListed(t *testing.T) {
	o := options{list: "cells.txt"}
	cells, err := o.cells()
	if err != nil {
		t.Fatal(err)
	}
	worlds := map[string]int{}
	for _, c := range cells {
		worlds[c.world]++
	}
	if len(worlds) != len(workload.Names()) || worlds[conversation] != 0 {
		t.Errorf("cells by world without a trace: %v", worlds)
	}
	o.trace = "conversation.jsonl"
	with, err := o.cells()
	if err != nil || len(with) <= len(cells) {
		t.Errorf("%d cells with a trace, %d without: %v", len(with), len(cells), err)
	}
	if c := with[len(with)-1]; c.name() != "conversation, 32 × 1500k, load 0.95, seed 1-3" {
		t.Errorf("the last cell is %s", c.name())
	}

	for line, want := range map[string]string{
		"chat 8 500000 0.85":          "4 fields",
		"chat 8 500000 0.85 3-1":      "seeds",
		"chat 8 500000 0.85 one":      "seeds",
		"chat eight 500000 0.85 1":    "want numbers",
		"mails 8 500000 0.85 1":       `unknown "mails"`,
		"# chat\n\nchat 8 1 0.85 1 2": "bad.txt:3: 6 fields",
	} {
		o := options{list: filepath.Join(t.TempDir(), "bad.txt")}
		if err := os.WriteFile(o.list, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := o.cells(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want … %s …", line, err, want)
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
