package lint

import (
	"go/ast"
	"strings"
)

// leftToCheck is how a test that leaves itself out with -short says where it runs.
const leftToCheck = "make check runs it"

// Short finds what would keep a test from ever running whole. "make test" passes
// -short, and "make check" runs the packages again whose tests ask for it, which
// scripts/test finds by their text: so nothing else may ask, and who leaves a test
// to "make check" must ask.
func Short(files []*File) []Violation {
	asks := map[string]bool{}
	var found []Violation
	for _, f := range files {
		if !f.IsGo() {
			continue
		}
		for _, at := range shortsOf(f) {
			if f.IsTest() {
				asks[f.Dir()] = true
			} else {
				found = append(found, f.at(at, "testing.Short outside a _test.go file: scripts/test would not run its callers' tests whole"))
			}
		}
	}
	for _, f := range files {
		if !f.IsGo() || !f.IsTest() || asks[f.Dir()] {
			continue
		}
		for _, at := range leavesOf(f) {
			found = append(found, f.at(at, "a test is left to make check, and none of its package asks testing.Short()"))
		}
	}
	return found
}

// shortsOf finds the calls of testing.Short, and other mentions of it.
func shortsOf(f *File) (found []ast.Node) {
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Short" {
			if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "testing" {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

// leavesOf finds the skips that leave a test to "make check".
func leavesOf(f *File) (found []ast.Node) {
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		skip, isMethod := call.Fun.(*ast.SelectorExpr)
		reason, isText := call.Args[0].(*ast.BasicLit)
		if isMethod && isText && strings.HasPrefix(skip.Sel.Name, "Skip") && strings.Contains(reason.Value, leftToCheck) {
			found = append(found, n)
		}
		return true
	})
	return found
}
