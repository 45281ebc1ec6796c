package house

import (
	"go/ast"
	"strings"
	"testing"
)

// guessesPort reports whether f returns something, listens on a port that the kernel
// chooses, and only closes that listener again. The kernel may give such a port to an
// outgoing connection before the server opens it.
func guessesPort(f *ast.FuncDecl) bool {
	listens, closes, used := false, false, false
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			_, isGo := n.(*ast.GoStmt)
			used = used || isGo
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch s.Sel.Name {
		case "Listen", "ListenPacket":
			if len(call.Args) == 2 {
				address, ok := call.Args[1].(*ast.BasicLit)
				listens = listens || ok && strings.HasSuffix(address.Value, `:0"`)
			}
		case "Close":
			closes = true
		case "Accept", "Serve", "ReadFrom", "Cleanup", "Go":
			used = true
		}
		return true
	})
	return listens && closes && !used && f.Type.Results != nil
}

// Ports for servers that start later come from package loopback.
func TestPortsComeFromLoopback(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.folder != "loopback" && guessesPort(f) {
				t.Errorf("%s: %s chooses a port by closing a listener; use package loopback", s.path, f.Name.Name)
			}
		}
	}
}
