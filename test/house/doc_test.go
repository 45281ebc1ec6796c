package house

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every exported identifier has a doc comment. One comment may stand for a group
// of constants or variables; methods that an interface of another package asks
// for, and methods of unexported types, need none.
func TestExportedNamesHaveComments(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.file.Name.Name == "main" {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Doc != nil || !d.Name.IsExported() || (d.Recv != nil && (!ast.IsExported(receiver(d)) || usual[d.Name.Name])) {
					continue
				}
				t.Errorf("%s: func %s has no doc comment", s.path, d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
							t.Errorf("%s: type %s has no doc comment", s.path, spec.Name.Name)
						}
					case *ast.ValueSpec:
						if d.Tok == token.IMPORT || d.Doc != nil || spec.Doc != nil || spec.Comment != nil {
							continue
						}
						for _, name := range spec.Names {
							if name.IsExported() {
								t.Errorf("%s: %s has no doc comment", s.path, name.Name)
							}
						}
					}
				}
			}
		}
	}
}

// usual are the methods whose name says what the standard library wants of them.
var usual = map[string]bool{
	"Error": true, "String": true, "Unwrap": true, "Len": true, "Less": true, "Swap": true, "Push": true, "Pop": true, "ServeHTTP": true,
	"MarshalJSON": true, "UnmarshalJSON": true, "MarshalText": true, "UnmarshalText": true, "Write": true, "Read": true, "Close": true,
}

// architecture is the page that walks the reader through the code.
const architecture = "ARCHITECTURE.md"

var (
	spans = regexp.MustCompile("`([^`\n]+)`")
	named = regexp.MustCompile(`^(?:[\w.-]+/)+$|^[\w./-]+\.(?:go|md|yaml|yml|tmpl|cfg|conf|sh|service|socket)$|^(?:[\w.-]+/)+[\w.-]+$`)
)

// ARCHITECTURE.md names files and folders in backquotes. Each of them exists.
func TestArchitectureNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, architecture))
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, m := range spans.FindAllStringSubmatch(string(text), -1) {
		path := m[1]
		if !named.MatchString(path) || strings.HasPrefix(path, "/") {
			continue
		}
		files++
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Errorf("%s names %s, which does not exist", architecture, path)
		}
	}
	if files < 20 {
		t.Errorf("%s names %d files, want those that a request, an outcome, a KV event and a configuration key pass", architecture, files)
	}
}
