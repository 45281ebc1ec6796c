package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bytedance/sonic"

	"pointsman/config"
	"pointsman/resolve"
	"pointsman/sim/replay"
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

// Each policy has its page, and each page its policy.
func TestPolicyPages(t *testing.T) {
	headings := regexp.MustCompile(`(?m)^##? (.+)$`)
	pages := map[string]bool{"README.md": true}
	for _, name := range policies.Names() {
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
	for _, name := range policies.Names() {
		if !strings.Contains(page(t, "policies/README.md"), "]("+name+".md)") {
			t.Errorf("policies/README.md does not lead to %s", name)
		}
	}
}

// policyOptions are the options that a policy has, by the refusal of one that
// no policy has.
func policyOptions(t *testing.T, name string) []string {
	t.Helper()
	_, err := replay.ParsePolicies(policies, []string{"{name: " + name + ", no_such_option: 1}"})
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
				c, err := config.Parse(f, m[1], nil, checks)
				if err != nil {
					t.Errorf("%s:\n%s\n%v", f, m[1], err)
				} else if _, err := resolve.Resolve(c, resolve.Options{Policies: policies}); err != nil {
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
	there := metricNames(exposed(t))
	// A ratio of prompts is there after the first one.
	there["pointsman_hit_ratio"], there["pointsman_achievable_hit_ratio"] = true, true
	// Those of another agent, once it has sent a message.
	for _, m := range []string{"age_seconds", "lag_seconds", "gaps_total", "lists_total", "differed_total"} {
		there["pointsman_cluster_peer_"+m] = true
	}
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
		if info, err := os.Stat(f); err == nil && info.IsDir() {
			continue // packaging has tests of its own
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllString(string(text), -1) {
			if !there[m] && !there[strings.TrimSuffix(m, "_bucket")] {
				t.Errorf("%s: there is no metric %s", f, m)
			}
		}
	}
}

var measure = flag.String("measure", "", "replay this trace and write the results of each policy into its page")

// Each page shows the results of the policy with the same trace: the numbers are
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
	for _, name := range policies.Names() {
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
	specs := policies.Names()
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
		var r replay.Summary
		if err := sonic.UnmarshalString(line, &r); err != nil {
			t.Fatal(err)
		}
		rows[policies.Names()[i]] = fmt.Sprintf("| %s | %.3f | %.2f s | %.2f s | %.2f s | %.1f s |\n", load, r.HitRate, r.TTFT.Mean, r.TTFT.P50, r.TTFT.P90, r.TTFT.P99)
	}
	return rows
}
