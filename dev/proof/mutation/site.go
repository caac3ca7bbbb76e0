package mutation

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/overlay"
)

// Site is one place of the instrumented packages that can be made to go wrong.
type Site struct {
	// Func is the function, as in "Stream.wait" for a method, pointer or not, in a file of the
	// instrumented packages.
	Func, File string
	// What is what goes wrong there: an operator and the text that it changes, or the words of a
	// textual mutant.
	What string
	// Equivalent says why nothing can show that it goes wrong, and is empty for a mutant that
	// must be killed.
	Equivalent string
}

// Name is such as "Stream.wait: dropped: s.clock = s.clock.join(p.clock)".
func (s *Site) Name() string { return s.Func + ": " + s.What }

// Executions is how many executions of a site are made to go wrong in turn, one after the other, if
// programs come to so many; EquivalentExecutions of one that is equivalent, and HardExecutions are those
// that are tried on further programs if none is killed by those that were run in advance.
const (
	Executions           = 10
	EquivalentExecutions = 2
	HardExecutions       = 3
)

// Sites are all sites of the module at root, by the number that they have at the switch.
func Sites(root string) ([]Site, error) {
	sites, _, err := mutate(root)
	return sites, err
}

// mutate returns the sites, and the changed files.
func mutate(root string) ([]Site, overlay.Files, error) {
	sources, err := overlay.ReadSources(root)
	if err != nil {
		return nil, nil, err
	}
	m := &mutator{seen: map[string]int{}}
	files := overlay.Files{}
	for _, f := range sources {
		text, err := m.file(f)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		if text != "" {
			files[f.Path] = text
		}
	}
	if err := m.check(); err != nil {
		return nil, nil, err
	}
	files[registerFile] = m.register()
	return m.sites, files, nil
}

// registerFile is a file that the overlay adds to the engine.
const registerFile = "internal/fence/mutants.go"

// register is the text of the file that says what the sites are called.
func (m *mutator) register() string {
	text := fmt.Sprintf("package fence\n\nimport mutation %q\n\nfunc init() {\n\tmutation.Register([]string{\n", switchPath)
	for i := range m.sites {
		text += fmt.Sprintf("\t\t%q,\n", m.sites[i].Name())
	}
	return text + "\t})\n}\n"
}

type mutator struct {
	sites []Site
	// seen counts sites of one name.
	seen map[string]int
}

func (m *mutator) add(file, fn, what string) int {
	s := Site{Func: fn, File: file, What: what}
	if m.seen[s.Name()]++; m.seen[s.Name()] > 1 {
		s.What += fmt.Sprintf(" (%d)", m.seen[s.Name()])
	}
	s.Equivalent = equivalent[s.Name()]
	m.sites = append(m.sites, s)
	return len(m.sites) - 1
}

// file is a file with its mutants, and empty if it has none.
func (m *mutator) file(f *overlay.Source) (string, error) {
	var texts []textual
	for _, t := range textuals {
		if t.file == f.Path {
			texts = append(texts, t)
		}
	}
	if len(functions[f.Path])+len(texts) == 0 {
		return "", nil
	}
	source := []byte(f.Text)
	for _, t := range texts {
		var err error
		if source, err = m.textual(source, t); err != nil {
			return "", err
		}
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	r := &rewriter{source: source, set: set, file: f.Path, add: func(fn, operator, text string) int { return m.add(f.Path, fn, operator+": "+text) }}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			if _, mutated := places(f.Path, functionName(fn)); mutated {
				r.body(fn)
			}
		}
	}
	file.Decls = slices.Insert(file.Decls, 0, ast.Decl(&ast.GenDecl{Tok: token.IMPORT, Specs: []ast.Spec{
		&ast.ImportSpec{Name: ast.NewIdent("mutation"), Path: &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(switchPath)}},
	}}))
	var out strings.Builder
	err = format.Node(&out, set, file)
	return out.String(), err
}

// textual makes a mutant of the table in a file's text.
func (m *mutator) textual(source []byte, t textual) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || functionName(fn) != t.fn {
			continue
		}
		from, to := set.Position(fn.Body.Pos()).Offset, set.Position(fn.Body.End()).Offset
		body := string(source[from:to])
		if n := strings.Count(body, t.old); n != 1 {
			return nil, fmt.Errorf("mutant %q: its text is in %s %d times and must be there once: adapt it to the code\n%s", t.what, t.fn, n, t.old)
		}
		if strings.Count(t.new, guard) != 1 {
			return nil, fmt.Errorf("mutant %q: its new text must say %s once", t.what, guard)
		}
		body = strings.Replace(body, t.old, strings.ReplaceAll(t.new, guard, fmt.Sprintf("mutation.At(%d)", m.add(t.file, t.fn, t.what))), 1)
		return slices.Concat(source[:from], []byte(body), source[to:]), nil
	}
	return nil, fmt.Errorf("mutant %q: there is no function %s: adapt it to the code", t.what, t.fn)
}

// guard is what the table writes for the switch.
const guard = "mutated()"

// check demands that everything that the tables name is there.
func (m *mutator) check() error {
	for file, entries := range functions {
		for _, entry := range entries {
			fn, text, _ := strings.Cut(entry, ": ")
			if !slices.ContainsFunc(m.sites, func(s Site) bool { return s.File == file && s.Func == fn && strings.Contains(s.What, text) }) {
				return fmt.Errorf("%s has no %s: name what does its part now", file, entry)
			}
		}
	}
	for name := range equivalent {
		if !slices.ContainsFunc(m.sites, func(s Site) bool { return s.Name() == name }) {
			return fmt.Errorf("there is no mutant %q, which is said to be equivalent", name)
		}
	}
	return nil
}

// functionName is such as "stream.wait", and "Table.Load" for a method of a generic type.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*"), "[")
	return of + "." + f.Name.Name
}
