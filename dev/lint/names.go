package lint

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/tools/go/packages"
)

// Names are the names of Go that documents can quote: all those of the packages of modules, and the
// exported ones of the packages that they import.
type Names struct {
	// packages has the packages by name, and by the names that an import of a module gives them.
	packages map[string][]*types.Package
	// things has what a quotation can begin with besides a package: types, and the fields of types.
	things map[string][]types.Type
	// members has the fields and methods of all types.
	members map[string]bool
	// texts has the string literals of the modules: attributes and metrics look like names of Go.
	texts map[string]bool
	// own has the names of the modules' packages: only of these is known what they do not export.
	own  map[string]bool
	seen map[*types.Package]bool
	// links are the names in brackets that comments of the modules have.
	links []docLink
	// comments has the package comments of the modules' packages.
	comments map[*types.Package]string
}

type docLink struct {
	at   token.Position
	name string
	in   *types.Scope
}

// LoadNames reads the packages of the modules in the folders. It compiles what they import, as far
// as that is not in the build cache.
func LoadNames(ctx context.Context, folders ...string) (*Names, error) {
	n := &Names{
		packages: map[string][]*types.Package{}, things: map[string][]types.Type{}, members: map[string]bool{},
		texts: map[string]bool{}, own: map[string]bool{}, seen: map[*types.Package]bool{},
		comments: map[*types.Package]string{},
	}
	for _, folder := range folders {
		found, err := packages.Load(&packages.Config{
			Context: ctx, Dir: folder, BuildFlags: []string{AsThisProgram()},
			Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
				packages.NeedTypes | packages.NeedTypesSizes | packages.NeedExportFile | packages.NeedSyntax,
		}, "./...")
		if err != nil {
			return nil, err
		}
		var errs []error
		for _, p := range found {
			for _, e := range p.Errors {
				errs = append(errs, e)
			}
			n.own[p.Name] = true
			n.add(p.Types)
		}
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		for _, p := range found {
			of := map[string]*types.Package{}
			for _, imported := range p.Types.Imports() {
				of[imported.Path()] = imported
				n.add(imported)
			}
			for _, file := range p.Syntax {
				n.comments[p.Types] += file.Doc.Text()
				for _, i := range file.Imports {
					if at, err := strconv.Unquote(i.Path.Value); err == nil && i.Name != nil && of[at] != nil {
						n.name(i.Name.Name, of[at])
					}
				}
				for _, comment := range file.Comments {
					for _, m := range bracketed.FindAllStringSubmatch(comment.Text(), -1) {
						n.links = append(n.links, docLink{p.Fset.Position(comment.Pos()), m[1], p.Types.Scope()})
					}
				}
				ast.Inspect(file, func(node ast.Node) bool {
					if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
						if text, err := strconv.Unquote(literal.Value); err == nil {
							n.texts[text] = true
						}
					}
					return true
				})
			}
		}
	}
	return n, nil
}

func (n *Names) name(name string, p *types.Package) {
	if !slices.Contains(n.packages[name], p) {
		n.packages[name] = append(n.packages[name], p)
	}
}

func (n *Names) add(p *types.Package) {
	if n.seen[p] {
		return
	}
	n.seen[p] = true
	n.name(p.Name(), p)
	for _, name := range p.Scope().Names() {
		object, ok := p.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		n.things[name] = append(n.things[name], object.Type())
		for method := range types.NewMethodSet(types.NewPointer(object.Type())).Methods() {
			n.members[method.Obj().Name()] = true
		}
		if t, ok := object.Type().Underlying().(*types.Struct); ok {
			for field := range t.Fields() {
				n.members[field.Name()] = true
				if field.Exported() && !field.Embedded() {
					n.things[field.Name()] = append(n.things[field.Name()], field.Type())
				}
			}
		}
	}
}

var (
	quotation = regexp.MustCompile("`([^`]+)`")
	qualified = regexp.MustCompile(`(^|[^\w./:\-])((?:[\w\-]+/)*[A-Za-z]\w*(?:\.[A-Za-z]\w*)+)([^\w./:\-]|$|[.:](?:\W|$))`)
	bracketed = regexp.MustCompile(`\[\*?([A-Z]\w*(?:\.[A-Z]\w*)?|[a-z]\w*(?:\.[A-Z]\w*){1,2})\](?:[^(\[:\w]|$)`)
	// file is the end of a file's name, such as .md.
	file = regexp.MustCompile(`\.(md|go|mod|sum|json|jsonl|ya?ml|txt|log|sh|cu|ptx|trace)$`)
	// variables are those that mean the same in all documents, by their types.
	variables = map[string]string{"rt": "Runtime", "job": "Job", "slice": "Slice", "ticket": "Ticket"}
)

// Wrong lists the names that the documents quote and that do not exist, with their places. It looks
// at inline code and at Go blocks. In a table with a column "before" it leaves out that column.
func (n *Names) Wrong(documents ...Document) (wrong []string) {
	for _, d := range documents {
		check := func(line int, name string, variable bool) {
			if why := n.missing(name, variable); why != "" && !strings.Contains(d.Text, "/"+strings.Split(name, ".")[0]+")") {
				wrong = append(wrong, fmt.Sprintf("%s:%d: %s: %s", d.Path, line, name, why))
			}
		}
		past := -1 // the column of a table that has the names of the past
		lines := outsideOfCode(d.Text)
		for _, number := range slices.Sorted(maps.Keys(lines)) {
			line := lines[number]
			if !strings.HasPrefix(line, "|") {
				past = -1
			} else if cells := strings.Split(line, "|"); past < 0 {
				past = slices.IndexFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "before" })
			} else if past < len(cells) {
				line = strings.Join(slices.Delete(cells, past, past+1), "|")
			}
			for _, q := range quotation.FindAllStringSubmatch(line, -1) {
				for _, m := range qualified.FindAllStringSubmatch(q[1], -1) {
					if m[2] == q[1] || strings.ContainsFunc(m[2], unicode.IsUpper) { // else words of another language
						check(number, m[2], false)
					}
				}
			}
		}
		for _, b := range d.Blocks() {
			b.selectors(check)
		}
	}
	return wrong
}

// WrongLinks lists the links of comments, such as [core.Block.ID], that lead to no name.
func (n *Names) WrongLinks() (wrong []string) {
	for _, l := range n.links {
		first, rest, _ := strings.Cut(l.name, ".")
		var why string
		switch object := l.in.Lookup(first); {
		case object != nil && rest != "":
			why = missingIn([]types.Type{object.Type()}, first, strings.Split(rest, "."))
		case object == nil && rest != "":
			why = n.missing(l.name, false)
		case object == nil:
			why = "nothing is called so"
		}
		if why != "" {
			wrong = append(wrong, fmt.Sprintf("%v: [%s]: %s", l.at, l.name, why))
		}
	}
	return wrong
}

// Unlisted lists what packages make with an exported New function and leave out in the table of
// contents of their comment, if they have one: a reader of go doc would not find it.
func (n *Names) Unlisted() (missing []string) {
	for p, comment := range n.comments {
		_, contents, ok := strings.Cut(comment, "# What is where")
		for _, name := range p.Scope().Names() {
			f, isFunc := p.Scope().Lookup(name).(*types.Func)
			if !ok || !isFunc || !strings.HasPrefix(name, "New") || f.Signature().Results().Len() == 0 {
				continue
			}
			made := types.TypeString(f.Signature().Results().At(0).Type(), func(*types.Package) string { return "" })
			made = strings.TrimPrefix(made, "*")
			if !strings.Contains(contents, "["+made+"]") && !strings.Contains(contents, "["+name+"]") {
				missing = append(missing, fmt.Sprintf("the comment of %s does not name %s, which %s makes", p.Path(), made, name))
			}
		}
	}
	return missing
}

// selectors calls f with each x.Name of the block, with its line in the document, and with whether
// the block declares x.
func (b Block) selectors(f func(line int, name string, variable bool)) {
	file, fset, err := b.parsed()
	if err != nil {
		return // TestCodeInDocumentsCompiles says so
	}
	declared := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		switch d := node.(type) {
		case *ast.AssignStmt:
			for _, to := range d.Lhs {
				if x, ok := to.(*ast.Ident); ok {
					declared[x.Name] = true
				}
			}
		case *ast.Field:
			for _, x := range d.Names {
				declared[x.Name] = true
			}
		case *ast.ValueSpec:
			for _, x := range d.Names {
				declared[x.Name] = true
			}
		case *ast.ImportSpec:
			if at, err := strconv.Unquote(d.Path.Value); err == nil && d.Name == nil {
				declared[path.Base(at)] = false
			}
		}
		return true
	})
	ast.Inspect(file, func(node ast.Node) bool {
		if s, ok := node.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				f(fset.Position(s.Pos()).Line, x.Name+"."+s.Sel.Name, declared[x.Name])
			}
		}
		return true
	})
}

// missing says why a quoted name cannot be right, and nothing for one that can.
func (n *Names) missing(quoted string, variable bool) string {
	folder, name := path.Split(quoted)
	parts := strings.Split(name, ".")
	first, rest := parts[0], parts[1:]
	unknown := folder == "" && !ast.IsExported(first) && !ast.IsExported(rest[0]) && !n.own[first]
	switch {
	case unknown, file.MatchString(name), n.texts[name]:
		return ""
	case variable:
	case n.packages[first] != nil:
		var of []types.Type
		for _, p := range n.packages[first] {
			if folder != "" && !strings.HasSuffix("/"+p.Path(), "/"+folder+first) {
				continue
			}
			if object := p.Scope().Lookup(rest[0]); object != nil {
				of = append(of, object.Type())
			}
		}
		if of == nil {
			return fmt.Sprintf("package %s has no %s", folder+first, rest[0])
		}
		return missingIn(of, folder+first+"."+rest[0], rest[1:])
	case folder != "":
		return "no package " + folder + first
	case first == "C": // cgo's
		return ""
	case ast.IsExported(first):
		if n.things[first] == nil {
			return "nothing is called " + first
		}
		return missingIn(n.things[first], first, rest)
	case ast.IsExported(rest[0]) && variables[first] != "":
		return missingIn(n.things[variables[first]], first, rest)
	}
	if ast.IsExported(rest[0]) && !n.members[rest[0]] {
		return "no type has a " + rest[0]
	}
	return ""
}

// missingIn says which of the members does not exist, each one of the member before it.
func missingIn(of []types.Type, name string, members []string) string {
	for _, member := range members {
		var next []types.Type
		for _, t := range of {
			if object, _, _ := types.LookupFieldOrMethod(t, true, declaredIn(t), member); object != nil {
				next = append(next, object.Type())
			}
		}
		if next == nil {
			return fmt.Sprintf("%s has no %s", name, member)
		}
		of, name = next, name+"."+member
	}
	return ""
}

// declaredIn is the package whose unexported members t has.
func declaredIn(t types.Type) *types.Package {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if named, ok := types.Unalias(t).(*types.Named); ok {
		return named.Obj().Pkg()
	}
	return nil
}
