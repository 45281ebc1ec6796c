package house

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bytedance/sonic"
)

// The module in docs/custom-policy.md, which is outside of ours and uses exported
// names only, compiles and passes its test, and its policy, scorer and filter run
// in a pointsman that is built with the lines given there.
func TestCustomPolicy(t *testing.T) {
	doc := filepath.Join(root, "docs", "custom-policy.md")
	one := func(language string) string {
		t.Helper()
		blocks := fences(t, doc, language)
		if len(blocks) != 1 {
			t.Fatalf("%d blocks of %s, want one", len(blocks), language)
		}
		return blocks[0]
	}
	blocks := fences(t, doc, "go")
	if len(blocks) != 8 {
		t.Fatalf("%d blocks of Go, want a policy, a scorer, a filter, four lines and a test", len(blocks))
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, text := range map[string]string{
		"split_by_length.go": blocks[0], "predicted_ttft.go": blocks[1], "large_cache.go": blocks[2], "routing_test.go": blocks[7],
	} {
		if formatted, err := format.Source([]byte(text)); err != nil || string(formatted) != text {
			t.Errorf("%s is not as gofmt has it: %v", name, err)
		}
		write("routing/"+name, text)
	}
	write("routing/go.mod", one("go.mod"))
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	write("go.work", strings.Replace(one("go.work"), "./pointsman", here, 1))

	// The lines go into copies of our files, which the build takes instead.
	replace := map[string]string{}
	edit := func(path string, changes ...string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		after := string(text)
		for i := 0; i < len(changes); i += 2 {
			if strings.Count(after, changes[i]) != 1 {
				t.Fatalf("%s has no place for the line: want %q once", path, changes[i])
			}
			after = strings.Replace(after, changes[i], changes[i+1], 1)
		}
		replace[filepath.Join(here, path)] = write("overlay/"+filepath.Base(path), after)
	}
	const weighted = "\tpolicy.With(\"weighted\", policy.WeightedDefaults, policy.NewWeighted),\n"
	edit("cmd/pointsman/policies.go",
		"package main\n", "package main\n\n"+blocks[3],
		"= policy.Table{\n", "= policy.Table{\n"+blocks[4],
		weighted, blocks[5])
	const locality = "\t\t{p.Locality, policy.Locality{}},\n"
	edit("resolve/decider.go",
		"package resolve\n", "package resolve\n\n"+blocks[3],
		locality, locality+blocks[6])
	overlay, err := sonic.MarshalString(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = write("overlay.json", overlay)

	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK="+filepath.Join(dir, "go.work"), "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
		}
		return string(out)
	}
	out := run("go", "test", "-v", "./routing")
	for _, name := range []string{"TestSplitByLength", "TestPredictedTTFT", "TestLargeCache"} {
		if !strings.Contains(out, "--- PASS: "+name) {
			t.Errorf("%s did not run:\n%s", name, out)
		}
	}
	bin := filepath.Join(dir, "pointsman-with-routing")
	run("go", "build", "-overlay", overlay, "-o", bin, filepath.Join(here, "cmd", "pointsman"))
	config := one("yaml")
	conf := write("pointsman.yaml", config)
	run(bin, "render", "haproxy", "--attach", "--version", "3.2", "--config", conf)
	write("pointsman.yaml", strings.Replace(config, "long: 4000", "long: 0", 1))
	refused, err := exec.Command(bin, "render", "haproxy", "--attach", "--version", "3.2", "--config", conf).CombinedOutput()
	if err == nil || !strings.Contains(string(refused), ":4:43: pools[llama].policy.long: want tokens, 1 or more") {
		t.Errorf("a bad option is refused as %v\n%s", err, refused)
	}
	var trace strings.Builder
	for n := range 200 {
		fmt.Fprintf(&trace, `{"timestamp": %d, "input_length": %d, "output_length": 50, "hash_ids": [0, %d]}`+"\n", 100*n, 600+n, n%20)
	}
	simulated := run(bin, "simulate", "--trace", write("trace.jsonl", trace.String()), "--replicas", "2", "--policy",
		"split_by_length,weighted:scorers={predicted_ttft: 1}")
	if !strings.Contains(simulated, "split_by_length") {
		t.Errorf("simulated as\n%s", simulated)
	}
}
