package lint

import (
	"go/ast"
	"regexp"
	"slices"
	"testing"
)

// codeName is a name of the code in a document: "folder.Name" or
// "folder.Type.Method".
var codeName = regexp.MustCompile("`([a-z0-9/]+)\\.([A-Za-z]\\w*(?:\\.\\w+)?)`")

// TestTheArchitectureNamesWhatThereIs looks for the names of the code in
// docs/architecture.md, which follows an allocation, a launch, a free and a finding
// from function to function.
func TestTheArchitectureNamesWhatThereIs(t *testing.T) {
	_, files := repository(t)
	names := map[string]map[string]bool{} // by folder
	for _, f := range files {
		if f.IsGo() && !f.IsTest() {
			if names[f.Dir()] == nil {
				names[f.Dir()] = map[string]bool{}
			}
			addNames(names[f.Dir()], f)
		}
	}
	at := slices.IndexFunc(files, func(f *File) bool { return f.Path == "docs/architecture.md" })
	if at < 0 {
		t.Fatal("there is no docs/architecture.md")
	}
	count := 0
	for _, n := range codeName.FindAllStringSubmatch(files[at].Text, -1) {
		folder, name := n[1], n[2]
		if names[folder] == nil || name == "go" {
			continue // another module's, or a file
		}
		if count++; !names[folder][name] {
			t.Errorf("docs/architecture.md names %s, which there is not", n[0])
		}
	}
	if count < 50 {
		t.Errorf("%d names were found", count)
	}
}

// addNames adds what a file declares, with the methods of types and interfaces and the
// fields of structs.
func addNames(to map[string]bool, f *File) {
	for _, d := range f.Syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				to[receiverName(d)+"."+d.Name.Name] = true
			} else {
				to[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				addSpec(to, spec)
			}
		}
	}
}

func addSpec(to map[string]bool, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			to[name.Name] = true
		}
	case *ast.TypeSpec:
		to[s.Name.Name] = true
		var members *ast.FieldList
		switch t := s.Type.(type) {
		case *ast.InterfaceType:
			members = t.Methods
		case *ast.StructType:
			members = t.Fields
		default:
			return
		}
		for _, m := range members.List {
			for _, name := range m.Names {
				to[s.Name.Name+"."+name.Name] = true
			}
		}
	}
}
