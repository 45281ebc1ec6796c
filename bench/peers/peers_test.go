package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"pointsman/demo"
)

func named(t *testing.T, names string) []*rival {
	t.Helper()
	list, err := choose(names)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestChoose(t *testing.T) {
	if got := named(t, "sglang,haproxy"); len(got) != 2 || got[0].name != "haproxy" {
		t.Error("rivals come in the order of the tables")
	}
	parts := 0
	for _, r := range rivals {
		if r.part {
			parts++
		}
	}
	if got := named(t, ""); parts == 0 || len(got) != len(rivals)-parts || slices.ContainsFunc(got, func(r *rival) bool { return r.part }) {
		t.Errorf("%d of %d rivals by default, of which %d show a part", len(got), len(rivals), parts)
	}
	if _, err := choose("haproxy,nobody"); err == nil || !strings.Contains(err.Error(), "sglang") {
		t.Errorf("%v does not name the valid ones", err)
	}
}

// Each name in braces of each command line is filled in, and {urls} becomes several
// arguments.
func TestFill(t *testing.T) {
	s := &scene{front: "127.0.0.1:8000", folder: "/f", engines: []string{"127.0.0.1:1", "127.0.0.2:1"}}
	got, err := fill("{bin}/r --port {port} --urls {urls} --all {commas} --models {models} -c {folder}/x", "/b", s)
	want := strings.Fields("/b/r --port 8000 --urls http://127.0.0.1:1 http://127.0.0.2:1 --all http://127.0.0.1:1,http://127.0.0.2:1 --models demo,demo -c /f/x")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, r := range rivals {
		if argv, err := fill(strings.Trim(r.command, "`"), "/b", s); err != nil || strings.ContainsAny(strings.Join(argv, ""), "{}") {
			t.Errorf("%s: %q, %v", r.name, argv, err)
		}
	}
}

func TestPackageVersion(t *testing.T) {
	t.Setenv("POINTSMAN_CACHE", t.TempDir())
	if v, err := packageVersion("sglang-router"); err == nil {
		t.Errorf("version %s of what is not installed", v)
	}
	if err := os.MkdirAll(cache()+"/sglang-router/lib/python3.11/site-packages/sglang_router-0.3.2.dist-info", 0o755); err != nil {
		t.Fatal(err)
	}
	if v, err := packageVersion("sglang-router"); err != nil || v != "sglang-router 0.3.2" {
		t.Error(v, err)
	}
}

// A ratio is the median over rounds, of those that both have had.
func TestOverRounds(t *testing.T) {
	if got := ratio([]float64{2, 30, 4, 99}, []float64{1, 10, 4}); got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := difference([]float64{2, 30, 4}, []float64{1, 10, 4}); got != 1 {
		t.Errorf("difference %v, want 1", got)
	}
	if got := ratio([]float64{1}, []float64{0}); got != 0 {
		t.Errorf("ratio to nothing %v", got)
	}
}

func TestPage(t *testing.T) {
	b := newBench(named(t, "haproxy,pointsman-haproxy,sglang,smg"), []string{"latency", "cpu", "throughput", "failures", "quality"})
	b.broken = map[string]string{}
	at := map[string]*rival{}
	for _, r := range b.rivals {
		at[r.name] = r
	}
	for round := range 3 {
		b.note("latency 1", at["haproxy"], float64(100+round))
		b.note("latency 1", at["pointsman-haproxy"], float64(300+3*round))
		b.note("latency 1", at["sglang"], float64(200+2*round))
		b.note("rate 1", at["haproxy"], 1000)
		b.note("rate 1", at["pointsman-haproxy"], 500)
		b.note("rate 1", at["sglang"], 400)
	}
	b.lost["pointsman-haproxy"], b.lost["sglang"] = failed{2, 0}, failed{1, 30}
	b.seen["pointsman-haproxy"] = map[float64]quality{0.85: {demo.Seen{TTFT: demo.Percentiles{P50: 100, P90: 200, P99: 300}, HitRate: .5}}}
	b.seen["sglang"] = map[float64]quality{0.85: {demo.Seen{TTFT: demo.Percentiles{P50: 80, P90: 400, P99: 600}, Failed: 7}}}
	b.fail(at["smg"], errors.New("no such file\nand more"))
	page := b.page("About.\n")
	for _, want := range []string{
		"| plain HAProxy | 101 | – | – |\n",
		"| **HAProxy + pointsman** | 303 (+202, × 3.00) | – | – |\n",
		"| SGLang router | 202 (+101, × 2.00) | – | – |\n",
		"| **HAProxy + pointsman** | 500 (× 0.50) | – | – |\n",
		"\nSMG did not run, or not to the end: no such file.\n",
		"| SGLang router | 1 | 30 |\n",
		"| **HAProxy + pointsman** | 100 | 200 | 300 | 50.0 % | 0 |\n",
		"| SGLang router | 80 | 400 | 600 | 0.0 % | 7 |\n",
		"- **HAProxy + pointsman** to SGLang router: latency at 1 KiB (× 1.50); failures of a killed engine (2 against 1); p50 of the time to the first token at load 0.85 (× 1.25).\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "to SMG") {
		t.Error("compares with what did not run")
	}
}
