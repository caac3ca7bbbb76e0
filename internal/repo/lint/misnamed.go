package lint

import (
	"go/ast"
	"regexp"
	"slices"
)

// nameAtStart is a name that a comment begins with: a sentence begins with a
// capital, so a small letter there is that of an unexported name. A path, a call
// and a test of the original's are no such names.
var nameAtStart = regexp.MustCompile(`^([a-z][A-Za-z0-9]*)[\s,]`)

// Misnamed finds comments that begin with another name than what they document
// has: the rest of a name that was changed. The comment of a group may begin with
// any name of the group, and that of a field with any of the struct.
func Misnamed(files []*File) []Violation {
	var found []Violation
	for _, f := range files {
		if !f.IsGo() {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				found = append(found, misnamed(f, n.Doc, n.Name)...)
			case *ast.GenDecl:
				found = append(found, misnamed(f, n.Doc, declaredBy(n.Specs)...)...)
			case *ast.TypeSpec:
				found = append(found, misnamed(f, n.Doc, n.Name)...)
			case *ast.StructType:
				found = append(found, misnamedFields(f, n.Fields)...)
			case *ast.InterfaceType:
				found = append(found, misnamedFields(f, n.Methods)...)
			}
			return true
		})
	}
	return found
}

func misnamedFields(f *File, fields *ast.FieldList) []Violation {
	var names []*ast.Ident
	for _, field := range fields.List {
		names = append(names, field.Names...)
	}
	var found []Violation
	for _, field := range fields.List {
		found = append(found, misnamed(f, field.Doc, names...)...)
	}
	return found
}

func misnamed(f *File, doc *ast.CommentGroup, names ...*ast.Ident) []Violation {
	if doc == nil || len(names) == 0 {
		return nil
	}
	first := nameAtStart.FindStringSubmatch(doc.Text())
	if len(first) < 2 || slices.ContainsFunc(names, func(n *ast.Ident) bool { return n.Name == first[1] }) {
		return nil
	}
	return []Violation{f.at(doc, "the comment begins with %q and documents %s", first[1], names[0].Name)}
}

func declaredBy(specs []ast.Spec) (names []*ast.Ident) {
	for _, spec := range specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			names = append(names, s.Name)
		case *ast.ValueSpec:
			names = append(names, s.Names...)
		}
	}
	return names
}
