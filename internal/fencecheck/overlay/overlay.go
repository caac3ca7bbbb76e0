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

// driven is what package ctl stands in for: in all files but those named, which
// keep the real one because what they have of it is mere statistics.
var driven = []struct{ path, name, except string }{
	{"sync", "sync", ""},
	{"sync/atomic", "atomic", "books.go"},
}

// hooks are added to packages, so that every run of a program counts from the
// same numbers.
var hooks = Files{
	"core/driven.go": `package core

import "` + module + `internal/fencecheck/ctl"

func init() {
	ctl.OnReset(func() {
		lastGeneration.Store(0)
		lastLaunch.Store(0)
	})
}
`,
	"cuda/driven.go": `package cuda

import "` + module + `internal/fencecheck/ctl"

func init() { ctl.OnReset(func() { lastLease.Store(0) }) }

func planted(n int) bool { return ctl.Planted(n) }
`,
}

// Driven is package cuda with its locks and atomics taken from package ctl.
func Driven(root string) (Files, error) {
	files := maps.Clone(hooks)
	paths, err := filepath.Glob(filepath.Join(root, "cuda", "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if text := drive(name, string(data)); text != string(data) {
			files["cuda/"+name] = text
		}
	}
	return files, nil
}

func drive(name, text string) string {
	for _, d := range driven {
		if name != d.except {
			text = strings.Replace(text, fmt.Sprintf("\n\t%q\n", d.path), fmt.Sprintf("\n\t%s %q\n", d.name, module+"internal/fencecheck/ctl"), 1)
		}
	}
	return text
}

// Edit is a change of one place in a file. Old must be there once.
type Edit struct{ File, Old, New string }

// Apply makes an edit in the files, which come from root if they do not have
// it yet.
func (f Files) Apply(root string, e Edit) error {
	text, ok := f[e.File]
	if !ok {
		data, err := os.ReadFile(filepath.Join(root, e.File))
		if err != nil {
			return err
		}
		text = string(data)
	}
	if n := strings.Count(text, e.Old); n != 1 {
		return fmt.Errorf("%s has %d times, and must have once:\n%s", e.File, n, e.Old)
	}
	f[e.File] = strings.Replace(text, e.Old, e.New, 1)
	return nil
}
