package lint

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strings"
)

// SeedsTable is the document that maps the original's names to ours.
const SeedsTable = "dev/seeds.md"

var (
	// goName is a qualified name in backquotes, perhaps with a member:
	// `core.Block`, `cuda.Slice[T]`, `core.Resource.Allocate`.
	goName = regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*)(?:\\[\\w+\\])?(\\.[A-Z]\\w*)?`")
	// testName is the name of a test, caseName that of a conformance case.
	testName = regexp.MustCompile("`(Test\\w+)`")
	caseName = regexp.MustCompile(`case ("[^".]+")`)
)

// Names finds names in the tables of the original's names that do not exist:
// Go names, tests, and cases of the conformance suite. Text outside of tables
// is free.
func Names(files []*File) []Violation {
	known := knownNames(files)
	var found []Violation
	for _, f := range files {
		if f.Path != SeedsTable {
			continue
		}
		number := 0
		for line := range strings.Lines(f.Text) {
			number++
			for _, name := range namesIn(line) {
				if strings.HasPrefix(line, "|") && !known[name] {
					found = append(found, Violation{File: f.Path, Line: number, Text: name + " does not exist"})
				}
			}
		}
	}
	return found
}

func namesIn(line string) []string {
	var names []string
	for _, m := range goName.FindAllStringSubmatch(line, -1) {
		names = append(names, m[1]+"."+m[2]+m[3])
	}
	for _, pattern := range []*regexp.Regexp{testName, caseName} {
		for _, m := range pattern.FindAllStringSubmatch(line, -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// caseLiteral is the name of a case where the suite defines it.
var caseLiteral = regexp.MustCompile(`\{name: ("[^"]+")`)

// knownNames are all names that the table may use.
func knownNames(files []*File) map[string]bool {
	known := map[string]bool{}
	for _, f := range files {
		if !f.IsGo() {
			continue
		}
		if f.Dir() == "core/coretest" {
			for _, m := range caseLiteral.FindAllStringSubmatch(f.Text, -1) {
				known[m[1]] = true
			}
		}
		pkg := path.Base(f.Dir())
		if f.Dir() == "." {
			pkg = path.Base(Module)
		}
		for _, decl := range f.Syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				addFunc(known, f, pkg, d)
			case *ast.GenDecl:
				addSpecs(known, pkg, d)
			}
		}
	}
	return known
}

func addFunc(known map[string]bool, f *File, pkg string, fn *ast.FuncDecl) {
	switch {
	case f.IsTest() && strings.HasPrefix(fn.Name.Name, "Test"):
		known[fn.Name.Name] = true
	case f.IsTest():
	case fn.Recv != nil:
		known[fmt.Sprintf("%s.%s.%s", pkg, receiverName(fn), fn.Name.Name)] = true
	default:
		known[pkg+"."+fn.Name.Name] = true
	}
}

func addSpecs(known map[string]bool, pkg string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range s.Names {
				known[pkg+"."+name.Name] = true
			}
		case *ast.TypeSpec:
			known[pkg+"."+s.Name.Name] = true
			for _, member := range membersOf(s.Type) {
				known[pkg+"."+s.Name.Name+"."+member] = true
			}
		}
	}
}

// membersOf are the named fields of a struct or the methods of an interface.
func membersOf(t ast.Expr) []string {
	var list *ast.FieldList
	switch x := t.(type) {
	case *ast.StructType:
		list = x.Fields
	case *ast.InterfaceType:
		list = x.Methods
	default:
		return nil
	}
	var members []string
	for _, field := range list.List {
		for _, name := range field.Names {
			members = append(members, name.Name)
		}
	}
	return members
}
