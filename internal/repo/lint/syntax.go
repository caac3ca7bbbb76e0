package lint

import "go/ast"

// Embedded finds anonymous fields in the structs of decorators, and in those
// of telemetry that are resources. An embedded upstream fails open: a method
// added to the contract would pass through a budget or a guard unseen.
func Embedded(files []*File) []Violation {
	resources := resourceTypes(files)
	var found []Violation
	for _, f := range files {
		if !f.IsGo() || f.IsTest() {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if ok && (under(f.Dir(), "decorators") || resources[f.Dir()+"."+spec.Name.Name]) {
				found = append(found, anonymousFields(f, spec)...)
			}
			return true
		})
	}
	return found
}

func anonymousFields(f *File, spec *ast.TypeSpec) []Violation {
	var found []Violation
	ast.Inspect(spec.Type, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				if len(field.Names) == 0 {
					found = append(found, f.at(field, "%s has an anonymous field: name it and spell out what it does", spec.Name.Name))
				}
			}
		}
		return true
	})
	return found
}

// resourceTypes are the types of telemetry that have the contract's central
// method, as "folder.Name".
func resourceTypes(files []*File) map[string]bool {
	types := map[string]bool{}
	for _, f := range files {
		if !f.IsGo() || f.IsTest() || !under(f.Dir(), "telemetry") {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.Name == "PrepareUse" {
				types[f.Dir()+"."+receiverName(fn)] = true
			}
		}
	}
	return types
}

// receiverName is the name of a method's type without star and parameters.
func receiverName(fn *ast.FuncDecl) string {
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
