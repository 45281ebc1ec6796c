package house

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository as seen from this package.
const root = "../.."

// arrows says what each package may import of ours, and with that which way
// the dependencies point. A package that is not listed here may import nothing.
var arrows = map[string][]string{
	"prompt":          {},
	"session":         {},
	"templates":       {},
	"config":          {},
	"spoa":            {}, // transport: knows nothing of decisions
	"decider":         {"prompt", "session"},
	"sim":             {"decider", "prompt", "session"},
	"engine":          {"decider", "prompt"},
	"haproxy":         {"decider", "spoa", "templates"}, // never nginx
	"discover":        {},
	"nginx":           {"decider", "templates"}, // never haproxy
	"admin":           {"decider"},
	"cmd/pointsman":   {"admin", "config", "decider", "discover", "engine", "haproxy", "nginx", "prompt", "session", "sim", "spoa", "templates"},
	"bench/overhead":  {"templates"},
	"bench/workloads": {},
	"packaging":       {},
}

// goFiles calls visit with each Go file that is not below test, and its folder.
func goFiles(t *testing.T, visit func(folder, path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || path == filepath.Join(root, "test")) {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") {
			rel, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			visit(filepath.ToSlash(rel), path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImportsFollowTheArrows(t *testing.T) {
	seen := map[string]bool{}
	goFiles(t, func(folder, path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		allowed, known := arrows[folder]
		if !known {
			t.Errorf("%s: the package %s has no place in the arrows", path, folder)
		}
		seen[folder] = true
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			ours, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "pointsman/")
			if ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s; %s may import %v", path, ours, folder, allowed)
			}
		}
	})
	for folder := range arrows {
		if folder != "packaging" && !seen[folder] {
			t.Errorf("%s has an arrow but no Go file", folder)
		}
	}
}

func TestEachPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{}
	packages := map[string]bool{}
	goFiles(t, func(folder, path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		packages[folder] = true
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if f.Doc != nil {
			comments[folder] = append(comments[folder], filepath.Base(path))
		}
	})
	for folder := range packages {
		if len(comments[folder]) != 1 {
			t.Errorf("%s: package comments in %v, want exactly one", folder, comments[folder])
		}
	}
}
