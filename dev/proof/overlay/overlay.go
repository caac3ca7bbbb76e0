// Package overlay writes overlays for the go command: other texts for some files
// of a build, which leave the files themselves alone.
//
// It has the one list of the packages that the proofs of the fences instrument: in which locks
// and atomics are replaced, mutants break the code, and faults are planted. The list is derived
// ([ReadSources]).
package overlay

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files are texts by path below the root of the module. A path that is no file
// there adds one.
type Files map[string]string

// Write writes the files into dir and the overlay that puts them below root.
// It returns the path for the go command's flag -overlay.
func (f Files) Write(root, dir string) (string, error) {
	replace := map[string]string{}
	for i, path := range slices.Sorted(maps.Keys(f)) {
		text := filepath.Join(dir, fmt.Sprintf("%03d.go", i))
		if err := os.WriteFile(text, []byte(f[path]), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, path)] = text
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}

// stands are what package interleave stands in for, and under which name.
var stands = []struct{ path, name string }{{"sync", "sync"}, {"sync/atomic", "atomic"}}

// interleave is the import path of the package that schedules goroutines.
var interleave = Proofs + "/interleave"

// resets are added to packages, so that every run of a program counts from the same
// numbers.
var resets = map[string][]string{
	"core": {"lastGeneration", "lastLaunch"},
	"cuda": {"lastLease"},
}

// Interleaved are the instrumented packages with their locks and atomics taken from package
// interleave. Each gets a function planted, which says whether a fault that was planted with
// [Files.Apply] is to show.
//
// Instrumented are Mutex, RWMutex, Pool and the atomic types. A file that names another lock of the standard
// library's (Once, Cond, WaitGroup) does not build in the overlay, whose error names it.
// Map and OnceFunc build there as they are, and no interleaving of them is tried. What goes by
// channels, or by package time, is not instrumented either.
func Interleaved(root string) (Files, error) {
	sources, err := ReadSources(root)
	if err != nil {
		return nil, err
	}
	files := Files{}
	for _, f := range sources {
		if text := interleaved(f); text != f.Text {
			files[f.Path] = text
		}
	}
	for folder, name := range sources.Packages() {
		files[folder+"/instrumented.go"] = hook(name, resets[folder])
	}
	return files, nil
}

// watched are where the runtime's own pool gives a block its memory, and makes that free,
// at once and prepared: no call of the driver shows it. In an instrumented file sync is
// package interleave.
var watched = []Edit{
	{
		"cuda/arenas.go", "func (m *arenas) take(s *stream, bytes uint64) (uint64, error) {",
		"func (m *arenas) take(s *stream, bytes uint64) (took uint64, err error) { defer func() { if err == nil { sync.Took(uint64(s.Handle()), took, bytes) } }()",
	},
	{
		"cuda/arenas.go", "func (m *arenas) give(s *stream, ptr, bytes uint64, behind *fence.Frontier) error {",
		"func (m *arenas) give(s *stream, ptr, bytes uint64, behind *fence.Frontier) error { sync.Gave(uint64(s.Handle()), ptr)",
	},
	{"cuda/serve.go", "\t\ts.arena.giveLocked(s, b.core.ID.Ptr", "\t\tsync.Gave(uint64(s.Handle()), b.core.ID.Ptr)\n\t\ts.arena.giveLocked(s, b.core.ID.Ptr"},
	{"cuda/serve.go", "import (", "import (\n\tsync \"" + interleave + "\""},
	{"cuda/kept.go", "import (", "import (\n\tsync \"" + interleave + "\""},
	{
		"cuda/kept.go", "\t\tr.keep(s, b)\n\t} else {",
		"\t\tsync.Gave(uint64(s.Handle()), b.core.ID.Ptr)\n\t\tr.keep(s, b)\n\t} else {",
	},
	{
		"cuda/kept.go", "\ts.calls.allocated++",
		"\tsync.Took(uint64(s.Handle()), b.core.ID.Ptr, b.core.Bytes)\n\ts.calls.allocated++",
	},
	{"cuda/serve.go", "\ts.calls.allocated++", "\tsync.Took(uint64(s.Handle()), ptr, req.Bytes)\n\ts.calls.allocated++"},
}

// Watch makes the instrumented files of the module at root tell of what the runtime's own pool does:
// see Watch of package interleave.
func (f Files) Watch(root string) error {
	for _, e := range watched {
		if err := f.Apply(root, e); err != nil {
			return err
		}
	}
	return nil
}

// interleaved is a file with the imports replaced that it does not keep.
func interleaved(f *Source) string {
	text := f.Text
	for _, s := range stands {
		if kept[f.Path][s.path] == "" {
			text = strings.Replace(text, fmt.Sprintf("\n\t%q\n", s.path), fmt.Sprintf("\n\t%s %q\n", s.name, interleave), 1)
		}
	}
	return text
}

// hook is a file that is added to a package.
func hook(pkg string, counters []string) string {
	text := "package " + pkg + "\n\nimport \"" + interleave + "\"\n\nfunc init() {\n\tinterleave.OnReset(func() {\n"
	for _, c := range counters {
		text += "\t\t" + c + ".Store(0)\n"
	}
	return text + "\t})\n}\n\nfunc planted(n int) bool { return interleave.Planted(n) }\n"
}

// Edit is a change of one place in an instrumented file, found by its name and by Old as in
// [Sources.Find]. Old must be there once.
type Edit struct{ File, Old, New string }

// Apply makes an edit in the files, which come from root if they do not have
// it yet.
func (f Files) Apply(root string, e Edit) error {
	list, err := ReadSources(root)
	if err != nil {
		return err
	}
	for i, file := range list {
		if text, ok := f[file.Path]; ok {
			list[i] = &Source{Path: file.Path, Package: file.Package, Text: text}
		}
	}
	file, err := list.Find(e.File, e.Old)
	if err != nil {
		return err
	}
	if n := strings.Count(file.Text, e.Old); n != 1 {
		return fmt.Errorf("%s has %d times, and must have once:\n%s", file.Path, n, e.Old)
	}
	f[file.Path] = strings.Replace(file.Text, e.Old, e.New, 1)
	return nil
}
