// Command typecheck type-checks the packages of a module and their tests, without cgo, for systems such as windows/amd64.
// It compiles nothing, so that it takes seconds for each.
package main

import (
	"fmt"
	"go/ast"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: typecheck MODULE SYSTEM...")
		os.Exit(2)
	}
	failed := false
	for _, system := range os.Args[2:] {
		n, err := check(os.Args[1], system)
		if err != nil {
			fmt.Fprintf(os.Stderr, "typecheck: %s: %v\n", system, err)
		}
		failed = failed || err != nil || n > 0
	}
	if failed {
		os.Exit(1)
	}
}

// check prints the errors of the packages, and returns how many there are.
func check(module, system string) (int, error) {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return 0, fmt.Errorf("name it as windows/amd64")
	}
	found, err := packages.Load(&packages.Config{
		Dir:   module,
		Env:   append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
		Tests: true,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo,
	}, "./...")
	if err != nil {
		return 0, err
	}
	errors := packages.PrintErrors(found)
	for _, p := range found {
		if slices.ContainsFunc(p.OtherFiles, func(path string) bool { return strings.HasSuffix(path, ".s") }) {
			continue
		}
		for _, f := range p.Syntax {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Body == nil {
					fmt.Fprintf(os.Stderr, "%s: %s has no body, and the package no assembly\n", p.Fset.Position(fn.Pos()), fn.Name.Name)
					errors++
				}
			}
		}
	}
	fmt.Printf("%s: %d packages\n", system, len(found))
	return errors, nil
}
