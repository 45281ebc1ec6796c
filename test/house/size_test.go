package house

import (
	"go/ast"
	"testing"
)

// The limits that keep files and types small enough to read at once.
const (
	mostLines   = 400
	mostMethods = 40
)

// longFiles are the files that may be longer than mostLines, each with its
// reason. An entry that is no longer needed fails the test.
var longFiles = map[string]string{}

// longTests are the test files that may be longer.
var longTests = map[string]bool{
	"decider/admission_test.go": true, // one scenario each, over shared helpers
}

// largeTypes are the types that may have more than mostMethods, each with its
// reason. An entry that is no longer needed fails the test.
var largeTypes = map[string]string{}

func TestFilesAreShort(t *testing.T) {
	long := map[string]bool{}
	for _, s := range sources(t) {
		if s.lines <= mostLines || longTests[s.path] {
			continue
		}
		long[s.path] = true
		if longFiles[s.path] == "" {
			t.Errorf("%s has %d lines, more than %d", s.path, s.lines, mostLines)
		}
	}
	for path := range longFiles {
		if !long[path] {
			t.Errorf("%s is not long: take it off the list", path)
		}
	}
}

func TestTypesAreSmall(t *testing.T) {
	methods := map[string]int{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[s.folder+"."+receiver(f)]++
			}
		}
	}
	for name, n := range methods {
		if n > mostMethods && largeTypes[name] == "" {
			t.Errorf("%s has %d methods, more than %d", name, n, mostMethods)
		}
	}
	for name := range largeTypes {
		if methods[name] <= mostMethods {
			t.Errorf("%s is not large: take it off the list", name)
		}
	}
}

// receiver is the name of the type that has the method.
func receiver(f *ast.FuncDecl) string {
	x := f.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.IndexListExpr:
			x = y.X
		case *ast.Ident:
			return y.Name
		default:
			return "?"
		}
	}
}
