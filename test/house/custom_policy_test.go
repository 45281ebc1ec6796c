package house

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bytedance/sonic"
)

// The policy in docs/custom-policy.md compiles, passes its test, and can be
// chosen in a configuration.
func TestCustomPolicy(t *testing.T) {
	doc := filepath.Join(root, "docs", "custom-policy.md")
	blocks := fences(t, doc, "go")
	yaml := fences(t, doc, "yaml")
	if len(blocks) != 3 || len(yaml) != 1 {
		t.Fatalf("%d blocks of Go and %d of YAML, want the file, the line and the test, and one example", len(blocks), len(yaml))
	}
	for _, b := range []string{blocks[0], blocks[2]} {
		if formatted, err := format.Source([]byte(b)); err != nil || string(formatted) != b {
			t.Errorf("not as gofmt has it: %v\n%s", err, b)
		}
	}
	dir := t.TempDir()
	replace := map[string]string{}
	lay := func(path, text string) {
		t.Helper()
		there, err := filepath.Abs(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		replace[there] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(replace[there], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lay("decider/policy_split_by_length.go", blocks[0])
	lay("decider/policy_split_by_length_test.go", blocks[2])
	const table = "cmd/pointsman/policies.go"
	before, err := os.ReadFile(filepath.Join(root, table))
	if err != nil {
		t.Fatal(err)
	}
	const begin = "var policies = policy.Table{\n"
	after := strings.Replace(string(before), begin, begin+blocks[1], 1)
	if after == string(before) {
		t.Fatalf("%s has no table of policies", table)
	}
	lay(table, after)
	overlay := filepath.Join(dir, "overlay.json")
	text, err := sonic.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "pointsman.yaml")
	for path, text := range map[string][]byte{overlay: text, conf: []byte(yaml[0])} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
		}
		return string(out)
	}
	if out := run("go", "test", "-overlay", overlay, "-run", "^TestSplitByLength$", "-v", "./decider"); !strings.Contains(out, "--- PASS: TestSplitByLength") {
		t.Errorf("its test did not run:\n%s", out)
	}
	bin := filepath.Join(dir, "pointsman")
	run("go", "build", "-overlay", overlay, "-o", bin, "./cmd/pointsman")
	run(bin, "render", "haproxy", "--attach", "--version", "3.2", "--config", conf)
	refused := strings.Replace(yaml[0], "long: 4000", "long: 0", 1)
	if err := os.WriteFile(conf, []byte(refused), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bin, "render", "haproxy", "--attach", "--version", "3.2", "--config", conf).CombinedOutput()
	if err == nil || !strings.Contains(string(out), ":4:43: pools[llama].policy.long: want tokens, 1 or more") {
		t.Errorf("a bad option is refused as %v\n%s", err, out)
	}
}
