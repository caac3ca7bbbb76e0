// Package overlay writes overlays for the go command: other texts for some files
// of a build, which leave the files themselves alone.
package overlay

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/driven"
)

// module is the path of this module.
const module = "github.com/fencepost-gpu/fencepost/"

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

// stands are what package ctl stands in for, and under which name.
var stands = []struct{ path, name string }{{"sync", "sync"}, {"sync/atomic", "atomic"}}

// resets are added to packages, so that every run of a program counts from the same
// numbers.
var resets = map[string][]string{
	"core": {"lastGeneration", "lastLaunch"},
	"cuda": {"lastLease"},
}

// Driven are the driven packages with their locks and atomics taken from package ctl.
// Each gets a function planted, which says whether a fault that was planted with
// [Files.Apply] is to show.
func Driven(root string) (Files, error) {
	list, err := driven.Files(root)
	if err != nil {
		return nil, err
	}
	files := Files{}
	for _, f := range list {
		if text := drive(f); text != f.Text {
			files[f.Path] = text
		}
	}
	for folder, name := range list.Packages() {
		files[folder+"/driven.go"] = hook(name, resets[folder])
	}
	return files, nil
}

// watched are where the runtime's own pool gives a block its memory, and makes that free, on the ordinary
// way and on the quick path: no call of the driver shows it. In a driven file sync is package ctl.
var watched = []Edit{
	{
		"cuda/lanes.go", "func (m *lanes) take(s *stream, bytes uint64) (uint64, error) {",
		"func (m *lanes) take(s *stream, bytes uint64) (took uint64, err error) { defer func() { if err == nil { sync.Took(uint64(s.Handle()), took, bytes) } }()",
	},
	{
		"cuda/lanes.go", "func (m *lanes) give(s *stream, ptr, bytes uint64) error {",
		"func (m *lanes) give(s *stream, ptr, bytes uint64) error { sync.Gave(uint64(s.Handle()), ptr)",
	},
	{"cuda/pool.go", "\t\ts.lane.giveLocked(s, b.core.ID.Ptr", "\t\tsync.Gave(uint64(s.Handle()), b.core.ID.Ptr)\n\t\ts.lane.giveLocked(s, b.core.ID.Ptr"},
	{"cuda/pool.go", "import (", "import (\n\tsync \"" + module + "dev/proof/ctl\""},
	{"cuda/pool.go", "\ts.calls.allocated++", "\tsync.Took(uint64(s.Handle()), ptr, req.Bytes)\n\ts.calls.allocated++"},
}

// Watch makes the driven files of the module at root tell of what the runtime's own pool does:
// see Watch of package ctl.
func (f Files) Watch(root string) error {
	for _, e := range watched {
		if err := f.Apply(root, e); err != nil {
			return err
		}
	}
	return nil
}

// drive replaces the imports that a file does not keep.
func drive(f *driven.File) string {
	text := f.Text
	for _, s := range stands {
		if driven.Kept[f.Path][s.path] == "" {
			text = strings.Replace(text, fmt.Sprintf("\n\t%q\n", s.path), fmt.Sprintf("\n\t%s %q\n", s.name, module+"dev/proof/ctl"), 1)
		}
	}
	return text
}

// hook is a file that is added to a package.
func hook(pkg string, counters []string) string {
	text := "package " + pkg + "\n\nimport \"" + module + "dev/proof/ctl\"\n\nfunc init() {\n\tctl.OnReset(func() {\n"
	for _, c := range counters {
		text += "\t\t" + c + ".Store(0)\n"
	}
	return text + "\t})\n}\n\nfunc planted(n int) bool { return ctl.Planted(n) }\n"
}

// Edit is a change of one place in a driven file, found by its name and by Old as in
// [driven.List.Find]. Old must be there once.
type Edit struct{ File, Old, New string }

// Apply makes an edit in the files, which come from root if they do not have
// it yet.
func (f Files) Apply(root string, e Edit) error {
	list, err := driven.Files(root)
	if err != nil {
		return err
	}
	for i, file := range list {
		if text, ok := f[file.Path]; ok {
			list[i] = &driven.File{Path: file.Path, Package: file.Package, Text: text}
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
