package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pointsman/sim/workload"
)

// small are two cells of a workload that is replayed fast.
func small(t *testing.T) *options {
	return &options{
		workloads: "embeddings", replicas: "2", loads: "0.5,0.9", caches: "200000", ours: "round_robin", rivals: "least_requests,random",
		profile: "8b", seeds: "1", csv: filepath.Join(t.TempDir(), "grid.csv"), replay: true,
	}
}

// run runs o and returns the page and the lines of its file.
func run(t *testing.T, o *options) (page string, lines []string) {
	t.Helper()
	r, err := o.run()
	if err != nil {
		t.Fatal(err)
	}
	var md strings.Builder
	if err := r.writeMarkdown(&md); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(o.csv)
	if err != nil {
		t.Fatal(err)
	}
	return md.String(), strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// TestGrid: every selected cell is run, and the page names those lost.
func TestGrid(t *testing.T) {
	page, lines := run(t, small(t))
	if len(lines) != 7 {
		t.Errorf("%d lines\n%s", len(lines), lines)
	}
	for _, want := range []string{"2 cells, seed 1. ", "| round_robin | embeddings, 2 × 200k, load 0.9, seed 1 | ", "| embeddings | 2 | ", "| 2 × 200k | least_requests | "} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

// A run that was stopped continues: what the file has is not measured again, and
// half a line is dropped.
func TestGridContinues(t *testing.T) {
	o := small(t)
	page, lines := run(t, o)
	edited := strings.Replace(lines[1], ",0.00000,", ",0.90000,", 1) // a figure that no replay gives
	if err := os.WriteFile(o.csv, []byte(lines[0]+"\n"+edited+"\n"+lines[2]+"\nembeddings,2,2000"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, again := run(t, o)
	slices.Sort(lines[2:])
	if slices.Sort(again[2:]); again[1] != edited || !slices.Equal(again[2:], lines[2:]) {
		t.Errorf("continued:\n%s\nwhole:\n%s", again, lines)
	}

	rivals := small(t)
	rivals.ours, rivals.seeds = "", "1-2"
	run(t, rivals)
	ours := small(t)
	ours.from, ours.seeds = rivals.csv, "1-2"
	first, lines := run(t, ours)
	if len(lines) != 5 { // ours alone
		t.Errorf("%d lines\n%s", len(lines), lines)
	}
	if !strings.Contains(first, "2 cells, seeds 1-2. ") {
		t.Errorf("the page with two seeds:\n%s", first)
	}
	// Only what is there, of seed 1 alone: the first line and rows of seed 1 are enough.
	one := slices.DeleteFunc(lines[1:], func(l string) bool { return strings.Contains(l, ",2,round_robin") || strings.Contains(l, ",0.9,") })
	if err := os.WriteFile(ours.csv, []byte(lines[0]+"\n"+strings.Join(one, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ours.replay = false
	if part, _ := run(t, ours); !strings.Contains(part, "1 of 2 cells are measured.") || !strings.Contains(part, "1 cell, seed 1. ") {
		t.Errorf("%s\nwhole, with another seed:\n%s", part, page)
	}
}

func TestGridRefusesFiles(t *testing.T) {
	row := "embeddings,2,200000,0.5,1,random,1,1,1,1,1,1\n"
	head := strings.Join(header, ",") + "\n"
	for text, want := range map[string]string{
		"policy,ttft\n":                  "wrong number of fields",
		strings.Repeat("x,", 11) + "x\n": "not a file of this command",
		head + "mails" + row[10:]:        `2: workload: unknown "mails"`,
		head + row + strings.Replace(row, "random,1", "random,2", 1): ":3: other figures of random in embeddings, 2 × 200000, load 0.5, seed 1 were read before",
		head + strings.Replace(row, "0.5,1,", "0.5,1-3,", 1):         "means over the seeds 1-3",
		head + strings.Replace(row, "random,1", "random,fast", 1):    `ttft_p90 "fast", want a number`,
		head + strings.Replace(row, ",0.5,", ",0.6,", 1):             "has none of the selected cells",
	} {
		o := small(t)
		o.from = filepath.Join(t.TempDir(), "from.csv")
		if err := os.WriteFile(o.from, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := o.run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want … %s …", text, err, want)
		}
	}
}

// The page names cells that a policy of ours loses, to the best rival, to what
// everybody has and to our first policy, and says which are not measured.
func TestPage(t *testing.T) {
	c := func(load float64, of seeds, first, second, rival float64) *cell {
		f := func(name string, ttft float64) figures {
			return figures{policy: name, ttft90: ttft, ttft99: ttft, e2e90: 1, good: ttft / 10}
		}
		return &cell{
			setup: setup{"chat", 4, 200000, load}, seeds: of, ours: []figures{f("least_work", first), f("{name: least_work_late}", second)},
			rivals: []figures{f("{name: kv_cost, preset: agentic}", rival), f("round_robin", 2)},
		}
	}
	r := results{
		ours: []string{"least_work", "{name: least_work_late}"}, missing: 1,
		cells: []*cell{c(0.7, seeds{1, 3}, 1, 1.2, 1), c(0.95, seeds{1, 1}, 3, 1, 2)},
	}
	var b strings.Builder
	if err := r.writeMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 of 3 cells are measured.",
		"2 cells, seeds 1 or 1-3. ",
		"| chat | 2 | 1.225 | 1.50 | 1.225 | 1.000 | 50% | 1 | 1 |",
		"| least_work | chat, 4 × 200k, load 0.95, seed 1 | 3 s | kv_cost agentic | 2 s | 1.50 |",
		"| least_work_late | chat, 4 × 200k, load 0.7, seed 1-3 | 1.2 s | kv_cost agentic | 1 s | 1.20 |",
		"least_work_late has more than 1.05 of the TTFT p90 of least_work in 1 cell: chat, 4 × 200k, load 0.7, seed 1-3 (1.20).",
		"| 4 × 200k, seed 1-3 | kv_cost agentic | 1 | 1.00 | **1.20** | | | | |",
		"| 4 × 200k, seed 1 | | | | | kv_cost agentic | 2 | **1.50** | 0.50 |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

// A rival whose p99 is low because most requests wait is not compared with.
func TestAgainstContenders(t *testing.T) {
	f := func(p90, p99 float64) figures { return figures{ttft90: p90, ttft99: p99} }
	c := &cell{ours: []figures{f(1, 9)}, rivals: []figures{f(1, 10), f(1.05, 12), f(2, 3)}}
	if got := againstContenders([]*cell{c}, 0); got < 0.899 || got > 0.901 {
		t.Errorf("%.3f, want 0.9", got)
	}
}

// A rival that is best with one seed only is lost with the other.
func TestChance(t *testing.T) {
	f := func(name string, ttft, good float64) figures { return figures{policy: name, ttft90: ttft, good: good} }
	always := [][]figures{{f("random", 1, 0.5), f("lmetric", 2, 0.5)}, {f("random", 1, 0.5), f("lmetric", 2, 0.5)}}
	once := [][]figures{{f("random", 1, 0.9), f("lmetric", 4, 0.5)}, {f("random", 4, 0.5), f("lmetric", 1, 0.6)}}
	r := results{}
	for _, of := range [][][]figures{always, once} {
		r.cells = append(r.cells, &cell{seeds: seeds{2, 3}, rivals: of[0], bySeed: of})
	}
	var b strings.Builder
	if r.chance(&b); !strings.Contains(b.String(), "| 2 | 2.000 | 1 | 50% |\n| 3 | 2.000 | 1 | 50% |\n") {
		t.Errorf("%s", &b)
	}
	b.Reset()
	r.cells[0].seeds.to = 2
	if r.chance(&b); b.Len() > 0 {
		t.Errorf("with one seed:\n%s", &b)
	}
}

// The committed list holds cells of all workloads; those of the trace need it.
func TestCellsListed(t *testing.T) {
	o := options{list: "cells.txt"}
	cells, err := o.cells()
	if err != nil {
		t.Fatal(err)
	}
	workloads := map[string]int{}
	for _, c := range cells {
		workloads[c.workload]++
	}
	if len(workloads) != len(workload.Names()) || workloads[conversation] != 0 {
		t.Errorf("cells by workload without a trace: %v", workloads)
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

func TestShort(t *testing.T) {
	for policy, want := range map[string]string{
		"least_work":                                     "least_work",
		"{name: kv_cost, preset: agentic}":               "kv_cost agentic",
		"{name: kv_cost, preset: agentic} queue 16 wspt": "kv_cost agentic queue 16 wspt",
	} {
		if got := short(policy); got != want {
			t.Errorf("%s: %s, want %s", policy, got, want)
		}
	}
}

func TestGridRefuses(t *testing.T) {
	for want, change := range map[string]func(*options){
		`unknown "mails"`: func(o *options) { o.workloads = "mails" },
		"want numbers":    func(o *options) { o.loads = "high" },
		`unknown "best"`:  func(o *options) { o.rivals = "best" },
		"seeds":           func(o *options) { o.seeds = "three" },
		`unknown "9b"`:    func(o *options) { o.profile = "9b" },
	} {
		o := options{workloads: "chat", replicas: "2", loads: "1", caches: "200000", ours: "random", rivals: "random", profile: "8b", seeds: "1", replay: true}
		change(&o)
		if _, err := o.run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want … %s …", err, want)
		}
	}
}
