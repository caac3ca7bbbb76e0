package overlay

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// TestNoLockIsLeftUninstrumented demands of every instrumented file that it keeps none of the
// standard library's locks and atomics but those that are in kept.
func TestNoLockIsLeftUninstrumented(t *testing.T) {
	root := must.Get(Root(t.Context()))(t)
	list := must.Get(ReadSources(root))(t)
	files := must.Get(Interleaved(root))(t)
	replaced := 0
	for _, f := range list {
		text, ok := files[f.Path]
		if !ok {
			text = f.Text
		} else {
			replaced++
		}
		found := must.Get(locks(text))(t)
		for _, lock := range found {
			if kept[f.Path][lock] == "" {
				t.Errorf("%s keeps the standard library's %s: no interleaving of it is tried. Import it in a group, on a line of its own and by its own name; "+
					"if it is no part of a protocol, say so in kept", f.Path, lock)
			}
		}
		if strings.Count(text, "\n") != strings.Count(f.Text, "\n") {
			t.Errorf("%s has other lines than before: traces would be wrong", f.Path)
		}
	}
	for folder, name := range list.Packages() {
		if !strings.Contains(files[folder+"/instrumented.go"], "package "+name+"\n") {
			t.Errorf("%s has no hook", folder)
		}
	}
	// Fewer are right only if what they held is gone, and not if it is elsewhere.
	if replaced < 25 {
		t.Errorf("%d files are instrumented", replaced)
	}
}

// writeModule writes a module in which package cuda imports another.
func writeModule(t *testing.T, inner string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range map[string]string{
		"cuda/a.go":           "package cuda\n\nimport (\n\t\"sync\"\n\n\t_ \"" + module + "internal/fence\"\n)\n\nvar mu sync.Mutex // one two, two\n",
		"cuda/c.go":           "package cuda\n",
		"internal/fence/b.go": inner,
		"internal/fence/c.go": "package fence\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o750))
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

// What has moved into a package of its own is instrumented there.
func TestAPackageThatIsImportedIsInstrumented(t *testing.T) {
	files := must.Get(Interleaved(writeModule(t, "package fence\n\nimport (\n\t\"sync/atomic\"\n)\n\nvar n atomic.Int32\n")))(t)
	for path, want := range map[string]string{
		"cuda/a.go":                      "sync \"" + interleave + "\"",
		"internal/fence/b.go":            "atomic \"" + interleave + "\"",
		"cuda/instrumented.go":           "lastLease.Store(0)",
		"internal/fence/instrumented.go": "func planted(n int) bool",
	} {
		if !strings.Contains(files[path], want) {
			t.Errorf("%s is\n%s\nand has no %s", path, files[path], want)
		}
	}
	if len(files) != 4 {
		t.Errorf("%d files are replaced or added", len(files))
	}
}

func TestAnEditMustFitOnce(t *testing.T) {
	root := writeModule(t, "package fence // a b\n")
	f := Files{}
	if err := f.Apply(root, Edit{"a.go", "one", "1"}); err != nil || !strings.Contains(f["cuda/a.go"], "// 1 two, two") {
		t.Errorf("%q, %v", f["cuda/a.go"], err)
	}
	if err := f.Apply(root, Edit{"b.go", "a b", "c"}); err != nil || f["internal/fence/b.go"] != "package fence // c\n" {
		t.Errorf("%q, %v", f["internal/fence/b.go"], err)
	}
	for _, old := range []string{"one", "two", "three"} {
		if err := f.Apply(root, Edit{"a.go", old, ""}); err == nil {
			t.Errorf("%q was replaced", old)
		}
	}
	for _, name := range []string{"c.go", "d.go", "fence/b.go"} { // one in two packages, and two that are nowhere
		if err := f.Apply(root, Edit{name, "package ", "p"}); err == nil {
			t.Errorf("%s was changed", name)
		}
	}
	dir := t.TempDir()
	path, err := f.Write(root, dir)
	must.Do(t, err)
	data, err := os.ReadFile(path)
	if err != nil || !slices.ContainsFunc(strings.Split(string(data), "\""), func(s string) bool { return s == filepath.Join(root, "cuda", "a.go") }) {
		t.Errorf("%s, %v", data, err)
	}
}
