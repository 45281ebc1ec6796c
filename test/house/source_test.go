package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// root is the repository as seen from this package.
const root = "../.."

// source is a Go file of the repository.
type source struct {
	folder string // as an import path has it after the module's name
	path   string // from root
	test   bool   // a _test.go file, or below test
	lines  int
	file   *ast.File
}

// sources parses every Go file of the repository.
func sources(t *testing.T) (all []source) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		s := source{folder: filepath.ToSlash(filepath.Dir(rel)), path: rel, file: f, lines: set.File(f.FileStart).LineCount()}
		s.test = strings.HasSuffix(name, "_test.go") || s.folder == "test" || strings.HasPrefix(s.folder, "test/")
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
