package house

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Results under bench and decisions name the tests and benchmarks that produce
// them, and the packages to run; all of these exist.
func TestNamedTestsExist(t *testing.T) {
	defined := map[string]bool{}
	decl := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range decl.FindAllSubmatch(text, -1) {
			defined[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, pattern := range []string{"bench/*.md", "docs/*.md", "docs/*/*.md"} {
		some, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, some...)
	}
	name := regexp.MustCompile(`\b(?:Test|Benchmark)[A-Z]\w+`)
	command := regexp.MustCompile("`go (?:test|run) [^`]*?\\./([\\w/]+?)[/.]*[ `]")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		code := regexp.MustCompile("(?s)```.*?```").ReplaceAll(text, nil)
		for _, n := range name.FindAll(code, -1) {
			if !defined[string(n)] {
				t.Errorf("%s names %s, which does not exist", page, n)
			}
		}
		for _, m := range command.FindAllSubmatch(code, -1) {
			if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
				t.Errorf("%s: no package %s", page, m[1])
			}
		}
	}
}
