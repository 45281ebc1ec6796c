package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"pointsman/bench/stand"
)

// cell is one figure of the tables. How is its unit.
type cell struct {
	key, title string
	format     string
	more       bool // the more, the better
}

// tables are the tables of speeds, by part.
var tables = []struct {
	part, title, text string
	cells             []cell
}{
	{"latency", "Time of a request, one at a time",
		"Median in µs; in brackets what comes on top of the plain proxy, and the ratio to it. Body sizes in the columns.",
		[]cell{{"latency 1", "1 KiB", "%.0f", false}, {"latency 16", "16 KiB", "%.0f", false}, {"latency 128", "128 KiB", "%.0f", false}}},
	{"cpu", "Processor time",
		"Seconds per 1,000 requests with 32 clients, and per 1,000 chunks of streams of 100 chunks, of all processes that route: proxy and agent, or router.",
		[]cell{{"cpu 1", "1 KiB", "%.3f", false}, {"cpu 16", "16 KiB", "%.3f", false}, {"cpu 128", "128 KiB", "%.3f", false}, {"chunks", "1,000 chunks", "%.4f", false}}},
	{"throughput", "Requests per second, 32 clients",
		"Clients and replicas share the machine with what is measured, so these are no limits of a machine.",
		[]cell{{"rate 1", "1 KiB", "%.0f", true}, {"rate 16", "16 KiB", "%.0f", true}, {"rate 128", "128 KiB", "%.0f", true}}},
}

// page writes the whole page; about is its heading.
func (b *bench) page(about string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "# pointsman and other routers, side by side\n\n%s\n", about)
	w.WriteString("All run before the same fake replicas and take turns in each round, in an environment without\n" +
		"`PYTHONDONTWRITEBYTECODE`, `RUST_BACKTRACE` and their like. Client, replicas and routers share the\n" +
		"machine: compare ratios within this page, not absolute figures with other pages. A ratio is the median\n" +
		"of the rounds' ratios. Routers are compared with plain HAProxy, pointsman with its proxy without an\n" +
		"agent. Names in braces stand for addresses.\n\n")
	b.configurations(&w)
	for _, t := range tables {
		if b.has(t.part) {
			b.speedTable(&w, t.title, t.text, t.cells)
		}
	}
	if b.has("failures") {
		b.failureTable(&w)
	}
	if b.has("quality") {
		b.qualityTable(&w)
	}
	b.losses(&w)
	return w.String()
}

// configurations describes what ran, how, and what did not run.
func (b *bench) configurations(w *strings.Builder) {
	w.WriteString("## What ran\n\n| | version | configuration |\n|---|---|---|\n")
	for _, r := range b.rivals {
		version, err := r.version()
		if err != nil {
			version = "–"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", r.title, version, r.command)
	}
	for _, r := range b.rivals {
		if reason := b.broken[r.name]; reason != "" {
			first, _, _ := strings.Cut(reason, "\n")
			fmt.Fprintf(w, "\n%s did not run, or not to the end: %s.\n", r.title, strings.TrimSuffix(shortened(first, 300), "."))
		}
	}
	w.WriteString("\n")
}

// shortened cuts text to n bytes, and removes the folder of this run from it.
func shortened(text string, n int) string {
	if folder != "" {
		text = strings.ReplaceAll(text, folder, "…")
	}
	text = strings.ReplaceAll(text, cache(), "…")
	if len(text) > n {
		return strings.ToValidUTF8(text[:n], "") + "…"
	}
	return text
}

func (b *bench) speedTable(w *strings.Builder, title, text string, cells []cell) {
	fmt.Fprintf(w, "## %s\n\n%s\n\n|", title, text)
	for _, c := range cells {
		fmt.Fprintf(w, " | %s", c.title)
	}
	fmt.Fprintf(w, " |\n|%s\n", strings.Repeat("---|", len(cells)+1))
	for _, r := range b.rivals {
		if len(b.figures[cells[0].key][r.name]) == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s", r.title)
		for _, c := range cells {
			fmt.Fprintf(w, " | %s", b.entry(c, r))
		}
		w.WriteString(" |\n")
	}
	w.WriteString("\n")
}

// entry is a rival's figure, with what it adds to the plain proxy and the ratio.
func (b *bench) entry(c cell, r *rival) string {
	values := b.figures[c.key][r.name]
	if len(values) == 0 {
		return "–"
	}
	text := fmt.Sprintf(c.format, stand.Median(values))
	base := r.base
	if base == "" {
		base = "haproxy"
	}
	plain := b.figures[c.key][base]
	if base == r.name || r.name == "nginx" || len(plain) == 0 {
		return text
	}
	ratio := fmt.Sprintf("× %.2f", ratio(values, plain))
	if c.more {
		return text + " (" + ratio + ")"
	}
	return fmt.Sprintf("%s (%+"+c.format[1:]+", %s)", text, difference(values, plain), ratio)
}

// ratio is the median over the rounds of one rival's figure in units of another's.
func ratio(of, to []float64) float64 {
	return overRounds(of, to, func(a, b float64) float64 { return a / b })
}

// difference is the median over the rounds of the difference of two rivals' figures.
func difference(of, to []float64) float64 {
	return overRounds(of, to, func(a, b float64) float64 { return a - b })
}

// overRounds is the median of f over the rounds that both have had. A rival may have
// ended before the other.
func overRounds(of, to []float64, f func(a, b float64) float64) float64 {
	var list []float64
	for i := range min(len(of), len(to)) {
		if to[i] > 0 {
			list = append(list, f(of[i], to[i]))
		}
	}
	return stand.Median(list)
}

func (b *bench) failureTable(w *strings.Builder) {
	fmt.Fprintf(w, "## Failures\n\nOf %d requests, %.0f a second, each of which takes its replica %v: how many got no whole answer when\none of %d engines is killed after a second, and when what chooses is killed and started again %v\nlater. With pointsman that is the agent. For a proxy alone and for a router it is the process that the\nrequests pass; a killed proxy fails as in the plain proxy's row with pointsman, too.\n\n| | engine killed | what chooses killed |\n|---|---|---|\n",
		steady, float64(time.Second/steadyGap), serving, smallFleet, restarting)
	for _, r := range b.rivals {
		if f, ok := b.lost[r.name]; ok {
			fmt.Fprintf(w, "| %s | %d | %d |\n", r.title, f.engine, f.router)
		}
	}
	w.WriteString("\n")
}

func (b *bench) qualityTable(w *strings.Builder) {
	fmt.Fprintf(w, "## Quality\n\n%d requests of conversations to %d fake engines, in speed %d times a 70B model's, with caches of %d\ntokens; the load is a multiple of what round robin bears in the simulator. Times to the first token\nin ms. One run each: differences of some per cent mean nothing.\n\n", talks, smallFleet, talkSpeed, talkTokens)
	for _, load := range talkLoads {
		rate := 0.0
		var rows strings.Builder
		for _, r := range b.rivals {
			q, ok := b.seen[r.name][load]
			if !ok {
				continue
			}
			rate = q.Rate
			fmt.Fprintf(&rows, "| %s | %.0f | %.0f | %.0f | %.1f %% | %d |\n", r.title, q.TTFT.P50, q.TTFT.P90, q.TTFT.P99, 100*q.HitRate, q.Failed)
		}
		fmt.Fprintf(w, "Load %g, %.0f requests/s:\n\n| | p50 | p90 | p99 | hit rate | failed |\n|---|---|---|---|---|---|\n%s\n", load, rate, &rows)
	}
}

// described is the heading: the command, the commit, the machine and how busy it was.
func described(load string) string {
	commit, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	cpu := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("`make bench-peers`, %d rounds, %s, commit %s, %s, %d cores, %s. The machine had %s other\nprocesses that wanted to run when it began (its load average).\n",
		*rounds, time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(commit)), cpu, runtime.NumCPU(), runtime.Version(), load)
}

// loadAverage is the load average of the last minute.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, ok := strings.Cut(string(text), " ")
	if !ok {
		return "an unknown number of"
	}
	return load
}
