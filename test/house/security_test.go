package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var namedTests = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")

// SECURITY.md names the test that shows each thing that somebody cannot do. Each of them
// exists.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				tests[f.Name.Name] = true
			}
		}
	}
	names := namedTests.FindAllStringSubmatch(string(text), -1)
	for _, m := range names {
		if !tests[m[1]] {
			t.Errorf("SECURITY.md names %s, which does not exist", m[1])
		}
	}
	if len(names) < 30 {
		t.Errorf("SECURITY.md names %d tests", len(names))
	}
}
