package api

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Listing are the lines of each package, sorted, by its folder below the root of
// the module.
type Listing map[string][]string

// List lists the packages of the module at root that others can import: not those
// below a folder "internal", nor commands.
func List(root string) (Listing, error) {
	all := Listing{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		folder, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if folder != "." && !imports(path, entry.Name()) {
			return fs.SkipDir
		}
		lines, err := Package(path)
		if len(lines) > 0 {
			all[filepath.ToSlash(folder)] = lines
		}
		return err
	})
	return all, err
}

// imports reports whether a folder can have packages of this module that others
// import.
func imports(path, name string) bool {
	if name == "internal" || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return false
	}
	_, err := os.Stat(filepath.Join(path, "go.mod")) // a module of its own
	return errors.Is(err, fs.ErrNotExist)
}

// Package lists the package in a folder; a command exports nothing.
func Package(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var l lister
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if file.Name.Name == "main" {
			return nil, nil
		}
		for _, d := range file.Decls {
			l.declaration(d)
		}
	}
	l.promote()
	slices.Sort(l.lines)
	return slices.Compact(l.lines), nil // one line for what each system has its own text of
}

// lister collects lines.
type lister struct {
	lines []string
	// inner are the hidden types embedded in exported ones; methods are those of every
	// type, by its name.
	inner   []inner
	methods map[string][]*ast.FuncDecl
}

// inner is a hidden type that an exported struct embeds, whose methods are the struct's.
type inner struct {
	owner   string // with its type parameters
	name    string
	pointer bool
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *lister) declaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		l.function(d)
	case *ast.GenDecl:
		var like *ast.ValueSpec
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				l.typeSpec(s)
			case *ast.ValueSpec:
				if d.Tok == token.CONST && len(s.Values) == 0 {
					s.Type = like.Type // and the value goes on counting
				} else {
					like = s
				}
				l.values(d.Tok, s)
			}
		}
	}
}

func (l *lister) function(f *ast.FuncDecl) {
	if !f.Name.IsExported() {
		return
	}
	signature := strings.TrimPrefix(types.ExprString(f.Type), "func")
	if f.Recv == nil {
		l.add("func %s%s%s", f.Name.Name, parameters(f.Type.TypeParams), signature)
		return
	}
	recv := f.Recv.List[0].Type
	if l.methods == nil {
		l.methods = map[string][]*ast.FuncDecl{}
	}
	l.methods[receiver(recv)] = append(l.methods[receiver(recv)], f)
	if ast.IsExported(receiver(recv)) {
		l.add("method (%s) %s%s", types.ExprString(recv), f.Name.Name, signature)
	}
}

// promote lists the methods that exported structs have of hidden types.
func (l *lister) promote() {
	for _, in := range l.inner {
		owner, _, _ := strings.Cut(in.owner, "[")
		for _, f := range l.methods[in.name] {
			if slices.ContainsFunc(l.methods[owner], func(own *ast.FuncDecl) bool { return own.Name.Name == f.Name.Name }) {
				continue
			}
			star := ""
			if _, pointer := f.Recv.List[0].Type.(*ast.StarExpr); pointer && !in.pointer {
				star = "*"
			}
			l.add("method (%s%s) %s%s", star, in.owner, f.Name.Name, strings.TrimPrefix(types.ExprString(f.Type), "func"))
		}
	}
}

// receiver is the name of a method's type.
func receiver(t ast.Expr) string {
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

// parameters are type parameters with their constraints.
func parameters(list *ast.FieldList) string {
	if list == nil {
		return ""
	}
	var texts []string
	for _, f := range list.List {
		var names []string
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
		texts = append(texts, strings.Join(names, ", ")+" "+types.ExprString(f.Type))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// arguments are the names of type parameters, as a receiver has them.
func arguments(list *ast.FieldList) string {
	if list == nil {
		return ""
	}
	var names []string
	for _, f := range list.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
	}
	return "[" + strings.Join(names, ", ") + "]"
}

func (l *lister) values(kind token.Token, s *ast.ValueSpec) {
	for i, name := range s.Names {
		if !name.IsExported() {
			continue
		}
		line := fmt.Sprintf("%s %s", kind, name.Name)
		if s.Type != nil {
			line += " " + types.ExprString(s.Type)
		}
		if kind == token.CONST && i < len(s.Values) {
			line += " = " + types.ExprString(s.Values[i])
		}
		l.add("%s", line)
	}
}

func (l *lister) typeSpec(s *ast.TypeSpec) {
	if !s.Name.IsExported() {
		return
	}
	name := s.Name.Name + parameters(s.TypeParams)
	if s.Assign.IsValid() {
		l.add("type %s = %s", name, types.ExprString(s.Type))
		return
	}
	switch t := s.Type.(type) {
	case *ast.StructType:
		l.add("type %s struct", name)
		l.members("field", s.Name.Name, t.Fields)
		for _, f := range t.Fields.List {
			if hidden := embedded(f.Type); len(f.Names) == 0 && !ast.IsExported(hidden) {
				_, pointer := f.Type.(*ast.StarExpr)
				l.inner = append(l.inner, inner{s.Name.Name + arguments(s.TypeParams), hidden, pointer})
			}
		}
	case *ast.InterfaceType:
		l.add("type %s interface", name)
		l.members("method", s.Name.Name, t.Methods)
	default:
		l.add("type %s %s", name, types.ExprString(s.Type))
	}
}

// members are exported fields, or the methods of an interface, of which a hidden one
// says that nobody else can implement it.
func (l *lister) members(kind, owner string, list *ast.FieldList) {
	for _, f := range list.List {
		if len(f.Names) == 0 {
			if kind == "method" || ast.IsExported(embedded(f.Type)) {
				l.add("%s %s: %s", kind, owner, types.ExprString(f.Type))
			}
			continue
		}
		text := types.ExprString(f.Type)
		if kind == "method" {
			text = strings.TrimPrefix(text, "func")
		} else {
			text = " " + text
		}
		for _, n := range f.Names {
			if n.IsExported() || kind == "method" {
				l.add("%s %s.%s%s", kind, owner, n.Name, text)
			}
		}
	}
}

// embedded is the name of a field that has none of its own.
func embedded(t ast.Expr) string {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if selector, ok := t.(*ast.SelectorExpr); ok {
		return selector.Sel.Name
	}
	return receiver(t)
}
