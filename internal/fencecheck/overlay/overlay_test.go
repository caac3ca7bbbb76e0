package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoLockOfTheCUDAPackageIsLeftUndriven demands that what is not replaced has
// no import of the standard library's locks, but for the statistics.
func TestNoLockOfTheCUDAPackageIsLeftUndriven(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := Driven(root)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(root, "cuda", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	driven := 0
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text, ok := files["cuda/"+name]
		if !ok {
			text = string(data)
		} else {
			driven++
		}
		if strings.Contains(text, "\t\"sync\"") || strings.Contains(text, "\t\"sync/atomic\"") && name != "books.go" {
			t.Errorf("%s keeps the standard library's locks", name)
		}
		if strings.Count(text, "\n") != strings.Count(string(data), "\n") {
			t.Errorf("%s has other lines than before: traces would be wrong", name)
		}
	}
	if driven < 10 {
		t.Errorf("%d files are driven", driven)
	}
}

func TestAnEditMustFitOnce(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("one two, two"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Files{}
	if err := f.Apply(root, Edit{"a.go", "one", "1"}); err != nil || f["a.go"] != "1 two, two" {
		t.Errorf("%q, %v", f["a.go"], err)
	}
	for _, old := range []string{"one", "two", "three"} {
		if err := f.Apply(root, Edit{"a.go", old, ""}); err == nil {
			t.Errorf("%q was replaced", old)
		}
	}
	if err := f.Apply(root, Edit{"b.go", "one", "1"}); err == nil {
		t.Error("a file that is not there was changed")
	}
	path, err := f.Write(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), filepath.Join(root, "a.go")) {
		t.Errorf("%s, %v", data, err)
	}
}
