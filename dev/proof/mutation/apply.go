package mutation

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// guard is what the table writes for the switch.
const guard = "mutated()"

// numbered is a site with its number.
type numbered struct {
	Site
	number int
}

// apply changes a file of the driven packages at some sites.
func apply(source []byte, sites []numbered, switchPath string) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var changes []change
	for _, s := range sites {
		c, err := s.find(source, files, file)
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	end := files.Position(file.Name.End()).Offset
	changes = append(changes, change{end, end, "; import mutation " + fmt.Sprintf("%q", switchPath)})
	out, err := splice(source, changes)
	if err != nil {
		return nil, err
	}
	return format.Source(out)
}

// change is a text in place of another.
type change struct {
	from, to int
	text     string
}

// find locates the text of a site.
func (s *numbered) find(source []byte, files *token.FileSet, file *ast.File) (change, error) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || functionName(f) != s.Func {
			continue
		}
		from, to := files.Position(f.Body.Pos()).Offset, files.Position(f.Body.End()).Offset
		body := source[from:to]
		if n := bytes.Count(body, []byte(s.Old)); n != 1 {
			return change{}, fmt.Errorf("site %q: its text is in %s of %s %d times and must be there once: adapt the site to the code\n%s", s.Name, s.Func, s.File, n, s.Old)
		}
		if strings.Count(s.New, guard) != 1 {
			return change{}, fmt.Errorf("site %q: its new text must say %s once", s.Name, guard)
		}
		at := from + bytes.Index(body, []byte(s.Old))
		return change{at, at + len(s.Old), strings.ReplaceAll(s.New, guard, fmt.Sprintf("mutation.At(%d)", s.number))}, nil
	}
	return change{}, fmt.Errorf("site %q: there is no function %s in %s: adapt the site to the code", s.Name, s.Func, s.File)
}

// functionName is such as "stream.wait", and "Table.Load" for a method of a generic type.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch of := t.(type) {
	case *ast.IndexExpr:
		t = of.X
	case *ast.IndexListExpr:
		t = of.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// splice makes all changes, which may not overlap.
func splice(source []byte, changes []change) ([]byte, error) {
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	at := 0
	for _, c := range changes {
		if c.from < at {
			return nil, fmt.Errorf("two sites change the same text:\n%s", c.text)
		}
		out = append(append(out, source[at:c.from]...), c.text...)
		at = c.to
	}
	return append(out, source[at:]...), nil
}
