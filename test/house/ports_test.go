package house

import (
	"go/ast"
	"go/parser"
	"go/token"
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

func TestGuessesPort(t *testing.T) {
	for body, want := range map[string]bool{
		`func f() string { l, _ := net.Listen("tcp", "127.0.0.1:0"); defer l.Close(); return l.Addr().String() }`:          true,
		`func f() int { c, _ := net.ListenPacket("udp", ":0"); c.Close(); return port(c) }`:                                true,
		`func f() string { l, _ := net.Listen("tcp", "127.0.0.1:0"); defer l.Close(); go serve(l); return ask(l.Addr()) }`: false,
		`func f() net.Listener { l, _ := net.Listen("tcp", "127.0.0.1:0"); return l }`:                                     false,
		`func f() string { l, _ := net.Listen("tcp", address); l.Close(); return address }`:                                false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "f.go", "package f\n"+body, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := guessesPort(f.Decls[0].(*ast.FuncDecl)); got != want {
			t.Errorf("%v, want %v: %s", got, want, body)
		}
	}
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
