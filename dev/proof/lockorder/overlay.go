package lockorder

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/lockorder/lockrecorder"
	"github.com/fencepost-gpu/fencepost/dev/proof/overlay"
)

// standIn is the folder of the package in place of package sync: a folder of the product's module
// that the overlay adds, so that tests of that module, which does not require the proofs, are
// built with it too.
const standIn = "internal/lockorder/lockrecorder"

//go:embed lockrecorder/lockrecorder.go
var lockrecorderText string

var standInImport = fmt.Sprintf("sync %q", overlay.Module+"/"+standIn)

// Overlay is the product with each of its locks recorded, and the classes of the locks;
// the number of a class is its place in the list.
func Overlay(root string, folders []string) (files overlay.Files, classes []string, err error) {
	files = overlay.Files{standIn + "/lockrecorder.go": lockrecorderText}
	classes = []string{""} // a class is not of size zero
	for _, folder := range folders {
		names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
		if err != nil {
			return nil, nil, err
		}
		slices.Sort(names)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, nil, err
			}
			w := watch{folder: folder, text: string(text), classes: classes}
			if err := w.file(); err != nil {
				return nil, nil, err
			}
			if classes = w.classes; w.text != string(text) {
				files[path.Join(folder, filepath.Base(name))] = w.text
			}
		}
	}
	if len(classes) > lockrecorder.MaxClasses {
		return nil, nil, fmt.Errorf("there are %d classes of locks: raise lockrecorder.MaxClasses", len(classes))
	}
	return files, classes, nil
}

// watch rewrites a file. Its lines stay where they are.
type watch struct {
	folder, text string
	classes      []string
	inserts      []insert
}

type insert struct {
	from, to int
	text     string
}

func (w *watch) file() error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", w.text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	imported := false
	for _, spec := range file.Imports {
		if spec.Path.Value == strconv.Quote("sync") && spec.Name == nil {
			w.replace(spec.Path, standInImport)
			imported = true
		}
	}
	if !imported {
		return nil
	}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok {
			w.declared(d)
		}
	}
	slices.SortFunc(w.inserts, func(a, b insert) int { return b.from - a.from })
	for _, in := range w.inserts {
		w.text = w.text[:in.from] + in.text + w.text[in.to:]
	}
	return nil
}

func (w *watch) declared(d *ast.GenDecl) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			w.of(s.Name.Name, s.Type)
		case *ast.ValueSpec:
			if s.Type != nil {
				w.of(s.Names[0].Name, s.Type)
			}
		}
	}
}

// of gives each lock in a type, which is called name, a class.
func (w *watch) of(name string, t ast.Expr) {
	switch t := t.(type) {
	case *ast.StructType:
		for _, f := range t.Fields.List {
			if len(f.Names) == 0 {
				w.of(name+".Mutex", f.Type)
			}
			if len(f.Names) > 0 {
				w.of(name+"."+f.Names[0].Name, f.Type)
			}
		}
	case *ast.ArrayType:
		w.of(name, t.Elt)
	case *ast.StarExpr:
		w.of(name, t.X)
	case *ast.SelectorExpr:
		if x, ok := t.X.(*ast.Ident); ok && x.Name == "sync" && (t.Sel.Name == "Mutex" || t.Sel.Name == "RWMutex") {
			w.inserts = append(w.inserts, insert{int(t.End()) - 1, int(t.End()) - 1, fmt.Sprintf("[[%d]byte]", len(w.classes))})
			w.classes = append(w.classes, strings.TrimPrefix(w.folder+"."+name, "."))
		}
	}
}

func (w *watch) replace(n ast.Node, text string) {
	w.inserts = append(w.inserts, insert{int(n.Pos()) - 1, int(n.End()) - 1, text})
}
