package lint

import (
	"go/ast"
	"slices"
	"strings"
)

// The comments that permit a panic on their line: one that was caught and goes
// on, and one that the same package catches, as a simulated kernel's fault.
const (
	repanic   = "// lint:repanic"
	recovered = "// lint:recovered"
)

// Panics finds calls of panic in library code. A service must not die of its
// memory manager; a panic that stays inside its package, or was another's to
// begin with, says so in a comment. Packages for tests, whose folder ends in
// "test", may panic: there it is the test that dies, of its own mistake.
func Panics(files []*File) []Violation {
	recovers := recoveringFolders(files)
	var found []Violation
	for _, f := range files {
		if !f.IsGo() || f.IsTest() || !isLibrary(f.Dir()) {
			continue
		}
		lines := strings.Split(f.Text, "\n")
		for _, call := range callsOf(f, "panic") {
			line := lines[f.Fset.Position(call.Pos()).Line-1]
			switch {
			case strings.Contains(line, repanic):
			case strings.Contains(line, recovered) && recovers[f.Dir()]:
			case strings.Contains(line, recovered):
				found = append(found, f.at(call, "nothing in this package recovers"))
			default:
				found = append(found, f.at(call, "panic in library code: return an error, or mark it with %s or %s if it is one", repanic, recovered))
			}
		}
	}
	return found
}

// recoveringFolders are those with a call of recover outside tests.
func recoveringFolders(files []*File) map[string]bool {
	folders := map[string]bool{}
	for _, f := range files {
		if f.IsGo() && !f.IsTest() && len(callsOf(f, "recover")) > 0 {
			folders[f.Dir()] = true
		}
	}
	return folders
}

// callsOf finds the calls of a built-in function.
func callsOf(f *File, builtin string) []*ast.CallExpr {
	var calls []*ast.CallExpr
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if name, ok := call.Fun.(*ast.Ident); ok && name.Name == builtin {
				calls = append(calls, call)
			}
		}
		return true
	})
	return calls
}

func isLibrary(dir string) bool {
	if dir == "." {
		return true
	}
	if strings.HasSuffix(dir, "test") {
		return false
	}
	return slices.ContainsFunc([]string{"core", "decorators", "cuda", "telemetry"}, func(p string) bool { return under(dir, p) })
}
