package overlay

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// tree writes the files of a module, by path.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o750))
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

func paths(l Sources) (all []string) {
	for _, f := range l {
		all = append(all, f.Path)
	}
	return all
}

func TestWhatTheEntryImportsIsOnTheList(t *testing.T) {
	imports := func(pkg, target string) string {
		return "package " + pkg + "\n\nimport _ \"" + module + target + "\"\n"
	}
	root := tree(t, map[string]string{
		"cuda/a.go":                imports("cuda", "internal/fence"),
		"cuda/a_test.go":           imports("cuda", "internal/fortests"),
		"cuda/b.go":                imports("cuda", "cuda/driver"),
		"cuda/internal/other/o.go": "package other\n",
		"cuda/driver/d.go":         imports("driver", "internal/behind"),
		"internal/fence/a.go":      imports("fence", "core"),
		"internal/behind/b.go":     "package behind\n",
		"internal/fortests/f.go":   "package fortests\n",
		"core/c.go":                "package core\n\nimport _ \"sync\"\n",
	})
	list, err := ReadSources(root)
	must.Do(t, err)
	if want := []string{"core/c.go", "cuda/a.go", "cuda/b.go", "internal/fence/a.go"}; !slices.Equal(paths(list), want) {
		t.Errorf("got %q, want %q", paths(list), want)
	}
	if want := map[string]string{"core": "core", "cuda": "cuda", "internal/fence": "fence"}; !maps.Equal(list.Packages(), want) {
		t.Errorf("packages are %v", list.Packages())
	}
	for name, want := range map[string]string{"b.go": "cuda/b.go", "internal/fence/a.go": "internal/fence/a.go", "a.go": "", "d.go": "", "a_test.go": ""} {
		f, err := list.Find(name, "package")
		if want == "" && err == nil || want != "" && (err != nil || f.Path != want) {
			t.Errorf("%s is %v, %v", name, f, err)
		}
	}
	if f, err := list.Find("a.go", "package fence"); err != nil || f.Path != "internal/fence/a.go" {
		t.Errorf("by its text: %v, %v", f, err)
	}
	must.Do(t, os.RemoveAll(filepath.Join(root, "internal", "fence")))
	if list, err := ReadSources(root); err == nil {
		t.Errorf("a package that is not there is passed over: %q", paths(list))
	}
}

func TestLocksAreFoundInEveryForm(t *testing.T) {
	for text, want := range map[string]string{
		"package p\nimport \"sync\"\n":                               "sync",
		"package p\nimport x \"sync/atomic\"\n":                      "sync/atomic",
		"package p\nimport (\n\t\"fmt\"\n\t\"sync\"\n)\n":            "sync",
		"package p\nimport \"golang.org/x/sync/semaphore\"\n":        "",
		"package p\n// import \"sync\"\nimport `sync`\n":             "sync",
		"package p\nimport \"sync\"\nvar m struct{ of sync.Map }\n":  "sync sync.Map",
		"package p\nimport sync \"x/interleave\"\nvar m *sync.Map\n": "sync.Map",
		"package p\nimport \"x/maps\"\nvar m maps.Map // sync.Map\n": "",
		"package p\nimport (\n\t\"sync\"\n\t. \"sync/atomic\"\n)\n":  "sync sync/atomic",
	} {
		got, err := locks(text)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q has %q, %v, want %q", text, got, err, want)
		}
	}
}

func repository(t *testing.T) (root string, list Sources) {
	t.Helper()
	root, err := Root(t.Context())
	must.Do(t, err)
	if list, err = ReadSources(root); err != nil {
		t.Fatal(err)
	}
	return root, list
}

// TestWhatIsNotInstrumentedHasNoLocks looks at what is left out: a package that has locks
// may not be, and a file is named as one that keeps an import only if it has it.
func TestWhatIsNotInstrumentedHasNoLocks(t *testing.T) {
	root, list := repository(t)
	for folder := range left {
		files, _, err := read(root, folder)
		expect.Success(t, err)
		for _, f := range files {
			if found, err := locks(f.Text); err != nil || len(found) > 0 {
				t.Errorf("%s is not instrumented and imports %q, %v", f.Path, found, err)
			}
		}
	}
	for name, imports := range kept {
		f, err := list.Find(name, "sync")
		if err != nil {
			t.Error(err)
			continue
		}
		found, err := locks(f.Text)
		expect.Success(t, err)
		for lock := range imports {
			if !slices.Contains(found, lock) {
				t.Errorf("%s does not have %s any more: take it out of kept", name, lock)
			}
		}
	}
}

// locks are the imports of the standard library's locks and atomics in a file's text, and
// "sync.Map" if it names that.
func locks(text string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, spec := range file.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if target == "sync" || strings.HasPrefix(target, "sync/") {
			found = append(found, target)
		}
	}
	for n := range ast.Preorder(file) {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Map" && isNamed(s.X, "sync") {
			return append(found, "sync.Map"), nil
		}
	}
	return found, nil
}

func isNamed(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}
