package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// build builds the binary once for a test.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "pointsman")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/pointsman")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// fences returns the fenced blocks of a language in a Markdown file.
func fences(t *testing.T, path, language string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	return out
}

// The configurations of the README, of the tutorials and of the pages for those who come
// from another router are accepted, and their commands exist with the flags that they are given.
func TestReadmeHolds(t *testing.T) {
	bin := build(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "migration", "*-*.md"))
	if err != nil || len(pages) < 4 {
		t.Fatal(pages, err)
	}
	for _, name := range []string{"migration/haproxy.md", "migration/nginx.md", "migration/litellm.md", "start.md", "alerts.md", "cluster.md"} {
		pages = append(pages, filepath.Join(root, "docs", name))
	}
	tutorials, err := filepath.Glob(filepath.Join(root, "docs", "tutorials", "*.md"))
	if err != nil || len(tutorials) < 4 {
		t.Fatal(tutorials, err)
	}
	pages = append(pages, tutorials...)
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		t.Run(filepath.Base(page), func(t *testing.T) { pageHolds(t, bin, page) })
	}
}

func pageHolds(t *testing.T, bin, readme string) {
	blocks := fences(t, readme, "yaml")
	if len(blocks) == 0 && filepath.Base(readme) != "alerts.md" {
		t.Fatal("no configuration in it")
	}
	conf := filepath.Join(t.TempDir(), "pointsman.yaml")
	for _, b := range blocks {
		if err := os.WriteFile(conf, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"render", "haproxy", "--attach", "--version", "3.2", "--config", conf}
		if strings.Contains(b, "nginx:") {
			args = []string{"render", "nginx", "--attach", "--config", conf}
		}
		out, err := exec.Command(bin, args...).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s\n%s", err, b, out)
		}
	}
	for _, block := range fences(t, readme, "sh") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, "#")
			for command := range strings.SplitSeq(line, "&&") {
				words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(command), "sudo "))
				if len(words) < 2 {
					continue
				}
				switch words[0] {
				case "make":
					if out, err := makeDry(words[1]); err != nil {
						t.Errorf("make %s: %v\n%s", words[1], err, out)
					}
				case "pointsman":
					if words[1] == "simulate" && (len(words) < 4 || words[3] != "agents" || os.Getenv("POINTSMAN_SOAK") != "") {
						shows(t, bin, readme, words[1:])
					}
					at := []string{words[1]} // a command, or one below another
					if words[1] == "attach" || words[1] == "detach" {
						at = words[1:min(3, len(words))]
					}
					help, err := exec.Command(bin, append(slices.Clone(at), "--help")...).CombinedOutput()
					if err != nil {
						t.Errorf("pointsman %s: %v", at, err)
					}
					for _, w := range words[1+len(at):] {
						if strings.HasPrefix(w, "--") && !strings.Contains(string(help), w) {
							t.Errorf("pointsman %s has no %s", at, w)
						}
					}
				}
			}
		}
	}
}

// shows runs a simulation of a page, and compares with what the page shows of it.
func shows(t *testing.T, bin, page string, args []string) {
	t.Helper()
	out, err := exec.Command(bin, args...).Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	policies := strings.Split(args[slices.Index(args, "--policy")+1], ",")
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 5 && slices.Contains(policies, words[0]) && !strings.Contains(string(text), "\n"+line) {
			t.Errorf("%s does not show what %v prints: %s", page, args, line)
		}
	}
}

func makeDry(target string) ([]byte, error) {
	cmd := exec.Command("make", "-n", target)
	cmd.Dir = root
	return cmd.CombinedOutput()
}

// Relative links in the documentation lead to a file and, where they name one, to
// a heading in it.
func TestLinksLead(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "bench/*.md", "docs/*.md", "docs/*/*.md"} {
		some, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, some...)
	}
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
			} else if m[2] != "" && !anchors(t, target)[m[2]] {
				t.Errorf("%s: %s has no heading #%s", page, target, m[2])
			}
		}
	}
}

// anchors are the names by which links reach the headings of a page.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(name, " ", "-")] = true
	}
	return found
}
