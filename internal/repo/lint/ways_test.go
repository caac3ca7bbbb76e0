package lint

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wayRow is a row of the tables that follow an allocation, a launch, a free and a
// finding: its first column is a function, as "folder.Type.Method" or "folder.Func".
var wayRow = regexp.MustCompile("(?m)^\\| `([a-z0-9/]+\\.[\\w.]+)` \\|")

// TestTheWaysThroughTheCodeNameFunctions looks for the functions that the tables of
// docs/architecture.md name.
func TestTheWaysThroughTheCodeNameFunctions(t *testing.T) {
	_, files := repository(t)
	functions := map[string]bool{}
	for _, f := range files {
		if f.IsGo() && !f.IsTest() {
			addFunctions(functions, f)
		}
	}
	at := slices.IndexFunc(files, func(f *File) bool { return f.Path == "docs/architecture.md" })
	if at < 0 {
		t.Fatal("there is no docs/architecture.md")
	}
	named := wayRow.FindAllStringSubmatch(files[at].Text, -1)
	if len(named) < 30 {
		t.Errorf("%d functions were found", len(named))
	}
	for _, n := range named {
		if !functions[n[1]] {
			t.Errorf("docs/architecture.md names %s, which there is not", n[1])
		}
	}
}

// addFunctions adds the functions and methods of a file, those of interfaces too.
func addFunctions(to map[string]bool, f *File) {
	folder := strings.TrimPrefix(f.Dir(), "./")
	for _, d := range f.Syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := folder + "."
			if d.Recv != nil {
				name += receiverName(d) + "."
			}
			to[name+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				s, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if face, ok := s.Type.(*ast.InterfaceType); ok {
					for _, m := range face.Methods.List {
						for _, name := range m.Names {
							to[folder+"."+s.Name.Name+"."+name.Name] = true
						}
					}
				}
			}
		}
	}
}
