package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/templates"
)

const docs = "../../docs"

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docChecks are the checks of load.
var docChecks = config.Checks{Policies: policyNames(), Policy: func(p *config.Policy) error {
	_, _, err := newPolicy(p)
	return err
}}

// Each policy has its page, and each page its policy.
func TestPolicyPages(t *testing.T) {
	headings := regexp.MustCompile(`(?m)^##? (.+)$`)
	pages := map[string]bool{"README.md": true}
	for _, name := range policyNames() {
		pages[name+".md"] = true
		text := page(t, "policies/"+name+".md")
		var got []string
		for _, m := range headings.FindAllStringSubmatch(text, -1) {
			got = append(got, m[1])
		}
		if want := []string{name, "Name", "Description", "Syntax", "Metrics", "Examples"}; !slices.Equal(got, want) {
			t.Errorf("%s: headings %v, want %v", name, got, want)
		}
		for _, option := range policyOptions(t, name) {
			if !strings.Contains(text, "| `"+option+"` |") {
				t.Errorf("%s: the option %s is not explained", name, option)
			}
		}
		if !strings.Contains(text, "name: "+name+",") && !strings.Contains(text, "policy: "+name+"\n") {
			t.Errorf("%s: no example uses it", name)
		}
	}
	files, err := filepath.Glob(filepath.Join(docs, "policies/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !pages[filepath.Base(f)] {
			t.Errorf("%s is the page of no policy", f)
		}
	}
	for _, name := range policyNames() {
		if !strings.Contains(page(t, "policies/README.md"), "]("+name+".md)") {
			t.Errorf("policies/README.md does not lead to %s", name)
		}
	}
}

// policyOptions are the options that a policy has, by the refusal of one that
// no policy has.
func policyOptions(t *testing.T, name string) []string {
	t.Helper()
	_, err := parsePolicy("{name: "+name+", no_such_option: 1}", policyNames())
	if err == nil {
		t.Fatalf("%s takes any option", name)
	}
	_, list, ok := strings.Cut(err.Error(), "want ")
	if !ok {
		return nil // there is nothing to set
	}
	return strings.Split(strings.ReplaceAll(list, " or ", ", "), ", ")
}

// What the documentation shows of a configuration is accepted.
func TestDocumentedConfigurations(t *testing.T) {
	fence := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	n := 0
	for _, pattern := range []string{"*.md", "policies/*.md", "../README.md"} {
		files, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if filepath.Base(f) == "custom-policy.md" {
				continue // its policy is not built in: test/house builds it
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			examples := fence.FindAllSubmatch(text, -1)
			if len(examples) == 0 && strings.HasSuffix(pattern, "/*.md") {
				t.Errorf("%s has no example", f)
			}
			for _, m := range examples {
				n++
				c, err := config.Parse(f, m[1], nil, docChecks)
				if err != nil {
					t.Errorf("%s:\n%s\n%v", f, m[1], err)
				} else if _, err := deciderConfig(c, time.Time{}); err != nil {
					t.Errorf("%s: %v", f, err)
				}
			}
		}
	}
	if n < len(policies) {
		t.Errorf("only %d examples were found", n)
	}
}

// Every metric there is, is explained in docs/metrics.md, and what the
// documentation names is there.
func TestDocumentedMetrics(t *testing.T) {
	there := exposed(t)
	name := regexp.MustCompile(`pointsman_[a-z0-9_]+`)
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(pointsman_[a-z0-9_]+)` \\|").FindAllStringSubmatch(page(t, "metrics.md"), -1) {
		listed[m[1]] = true
	}
	for m := range there {
		if !listed[m] {
			t.Errorf("docs/metrics.md does not list %s", m)
		}
	}
	var files []string
	for _, pattern := range []string{"*.md", "*/*.md", "../README.md", "../packaging/*"} {
		some, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllString(string(text), -1) {
			if !there[m] {
				t.Errorf("%s: there is no metric %s", f, m)
			}
		}
	}
}

// exposed are the metrics of an agent with a pool for each policy and every
// filter on, after one request has come to its end.
func exposed(t *testing.T) map[string]bool {
	t.Helper()
	var b strings.Builder
	fmt.Fprint(&b, "agent: {zone: a}\nlisten: {nginx: '127.0.0.1:1'}\nhaproxy: {runtime_api: '127.0.0.1:1'}\npools:\n")
	for _, name := range policyNames() {
		options := ""
		if name == "expression" {
			options = ", formula: in_flight"
		}
		fmt.Fprintf(&b, "  %s: {models: [%[1]s], lora: [lora-%[1]s], policy: {name: %[1]s%s}, locality: true, lora_affinity: true, sticky_sessions: true, admission: {wait: agent}, replicas: {%[1]s: {address: '127.0.0.1:1'}}}\n", name, options)
	}
	conf, err := config.Parse("test", []byte(b.String()), nil, docChecks)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAgent("test", conf, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	serve := func(serve func(net.Listener) error) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go serve(l)
		return l.Addr().String()
	}
	feed, admin := serve(a.feed.Serve), serve(a.admin.Serve)
	t.Cleanup(a.stop)

	c, err := net.Dial("tcp", feed)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pool := policyNames()[0]
	a.decider.Pool(pool).Engine(pool).Signals(decider.Signals{})
	line := templates.FeedMarker + " ev=close rid=00000000000000000000000000000001 pool=" + pool + " srv=" + pool + " st=200 ts=-- t0=1 tf=2"
	fmt.Fprintf(c, "%d %s", len(line), line)
	for deadline := time.Now().Add(10 * time.Second); a.decider.Pool(pool).Status().Stats.Outcomes[decider.Served] == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the feed's line did not arrive")
		}
	}

	names := map[string]bool{}
	for {
		resp, err := http.Get("http://" + admin + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		for lines.Scan() {
			m, _, _ := strings.Cut(strings.Fields(lines.Text() + " ")[0], "{")
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				if whole := strings.TrimSuffix(m, part); strings.HasSuffix(whole, "_seconds") {
					m = whole
				}
			}
			if strings.HasPrefix(m, "pointsman_") {
				names[m] = true
			}
		}
		if names["pointsman_ttft_seconds"] { // which comes a moment after the outcome
			return names
		}
	}
}

var measure = flag.String("measure", "", "replay this trace and write what it tells of each policy into its page")

// Each page tells what the policy did with the same trace: the numbers are
// written by -measure FILE with the conversation trace of Mooncake.
func TestMeasuredPages(t *testing.T) {
	begin := "| load | hit rate | TTFT mean | p50 | p90 | p99 |\n|---|---|---|---|---|---|\n"
	rows := regexp.MustCompile(regexp.QuoteMeta(begin) + `((?:\| 0\.85 .*\|\n\| 0\.95 .*\|\n)?)`)
	measured := map[string]string{}
	if *measure != "" {
		for _, load := range []string{"0.85", "0.95"} {
			for name, row := range measureAll(t, load) {
				measured[name] += row
			}
		}
	}
	for _, name := range policyNames() {
		text := page(t, "policies/"+name+".md")
		if *measure != "" {
			text = rows.ReplaceAllLiteralString(text, begin+measured[name])
			if err := os.WriteFile(filepath.Join(docs, "policies", name+".md"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if m := rows.FindStringSubmatch(text); m == nil || m[1] == "" {
			t.Errorf("%s: the page has no measured rows", name)
		}
	}
}

// measureAll replays the trace with every policy, and returns a row for each.
func measureAll(t *testing.T, load string) map[string]string {
	t.Helper()
	specs := policyNames()
	for i, name := range specs {
		switch name {
		case "expression":
			specs[i] = `{name: expression, formula: "queue_tokens + uncached + 0.02 * tokens"}`
		case "prefix_affinity":
			specs[i] = "prefix_affinity:imbalanced_threshold=10" // as Ray's guides pass it
		}
	}
	c := simulateArgs(t, "--trace", *measure, "--load", load, "--seeds", "3", "--json", "--policy", strings.Join(specs, ","))
	var out bytes.Buffer
	if err := c.run(&out); err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var r simulated
		if err := sonic.UnmarshalString(line, &r); err != nil {
			t.Fatal(err)
		}
		rows[policyNames()[i]] = fmt.Sprintf("| %s | %.3f | %.2f s | %.2f s | %.2f s | %.1f s |\n", load, r.HitRate, r.TTFT.Mean, r.TTFT.P50, r.TTFT.P90, r.TTFT.P99)
	}
	return rows
}
