package lint

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// Undocumented finds exported identifiers without a doc comment. A comment on
// a group of constants or variables covers the group; a trailing comment
// covers its line. Struct fields are left to judgement.
func Undocumented(files []*File) []Violation {
	var found []Violation
	for _, f := range files {
		if !f.IsGo() || f.IsTest() {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				found = append(found, undocumentedFunc(f, d)...)
			case *ast.GenDecl:
				found = append(found, undocumentedSpecs(f, d)...)
			}
		}
	}
	return found
}

func undocumentedFunc(f *File, fn *ast.FuncDecl) []Violation {
	if !fn.Name.IsExported() || fn.Doc != nil {
		return nil
	}
	if fn.Recv == nil {
		return []Violation{f.at(fn, "%s has no doc comment", fn.Name.Name)}
	}
	if receiver := receiverName(fn); ast.IsExported(receiver) {
		return []Violation{f.at(fn, "%s.%s has no doc comment", receiver, fn.Name.Name)}
	}
	return nil
}

func undocumentedSpecs(f *File, d *ast.GenDecl) []Violation {
	var found []Violation
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			if s.Doc == nil && d.Doc == nil {
				found = append(found, f.at(s, "%s has no doc comment", s.Name.Name))
			}
			found = append(found, undocumentedMethods(f, s)...)
		case *ast.ValueSpec:
			exported := slices.ContainsFunc(s.Names, func(n *ast.Ident) bool { return n.IsExported() })
			if exported && s.Doc == nil && s.Comment == nil && d.Doc == nil {
				found = append(found, f.at(s, "%s has no doc comment", s.Names[0].Name))
			}
		}
	}
	return found
}

// undocumentedMethods looks into interfaces: their methods are the contract.
func undocumentedMethods(f *File, s *ast.TypeSpec) []Violation {
	iface, ok := s.Type.(*ast.InterfaceType)
	if !ok {
		return nil
	}
	var found []Violation
	for _, m := range iface.Methods.List {
		if len(m.Names) == 1 && m.Names[0].IsExported() && m.Doc == nil && m.Comment == nil {
			found = append(found, f.at(m, "%s.%s has no doc comment", s.Name.Name, m.Names[0].Name))
		}
	}
	return found
}

// PackageComments finds packages that no file introduces.
func PackageComments(files []*File) []Violation {
	first := map[string]*File{}
	documented := map[string]bool{}
	for _, f := range files {
		if !f.IsGo() || f.IsTest() {
			continue
		}
		if first[f.Dir()] == nil {
			first[f.Dir()] = f
		}
		if f.Syntax.Doc != nil && strings.TrimSpace(f.Syntax.Doc.Text()) != "" {
			documented[f.Dir()] = true
		}
	}
	var found []Violation
	for _, dir := range slices.Sorted(maps.Keys(first)) {
		if !documented[dir] {
			f := first[dir]
			found = append(found, f.at(f.Syntax.Name, "package %s has no package comment", f.Syntax.Name.Name))
		}
	}
	return found
}
