package overlay

import (
	"context"
	"errors"
	"fmt"
	"go/build"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Module is the module whose packages are instrumented. The proofs may be in another, which
// requires it.
const Module = "github.com/fencepost-gpu/fencepost"

const module = Module + "/"

// Proofs is the import path of the folder with the packages of the proofs.
var Proofs = path.Dir(reflect.TypeFor[Files]().PkgPath())

// Root returns the folder of [Module] as the go command resolves it from the working
// directory, in a module or a workspace that has or requires it.
func Root(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", Module)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("where module %s is: %w", Module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// entry is the package that the proofs run.
const entry = "cuda"

// left are packages of the closure that are not instrumented, and why.
var left = map[string]string{
	"cuda/driver": "the seam at which the proofs put a device of their own",
}

// kept are the files of the instrumented packages that keep imports of the standard
// library's locks or atomics, or a sync.Map, and why. A file with one of these that is neither
// instrumented nor here fails a test, and so does an entry that is not needed any more.
var kept = map[string]map[string]string{
	"internal/fence/counts.go":       {"sync/atomic": "what it has of them is statistics"},
	"core/ids.go":                    {"sync/atomic": "counters of numbers, which every run of a program resets"},
	"core/runtime.go":                {"sync/atomic": "the facade above the resource that the proofs call"},
	"internal/monotime/line.go":      {"sync": "no fence follows from the time", "sync/atomic": "no fence follows from the time"},
	"internal/monotime/timeofday.go": {"sync/atomic": "no fence follows from the time"},
	"cuda/hostbuffer.go":             {"sync.Map": "it keeps pinners reachable, and is not read"},
	"internal/usercode/usercode.go":  {"sync.Map": "it rations what is logged of panics"},
}

// Source is a file of an instrumented package. Tests are none.
type Source struct {
	// Path is below the root of the module, with slashes.
	Path string
	// Package is the name in the package clause.
	Package string
	Text    string
}

// Folder is that of the file's package.
func (f *Source) Folder() string { return path.Dir(f.Path) }

// Sources are the files of the instrumented packages of the module at root, sorted by path.
type Sources []*Source

// ReadSources reads the files of the instrumented packages of the module at root: package cuda
// and what it imports from that module. So code that moves into a package of its own goes on
// being instrumented.
func ReadSources(root string) (Sources, error) {
	var list Sources
	seen := map[string]bool{}
	for queue := []string{entry}; len(queue) > 0; queue = queue[1:] {
		folder := queue[0]
		if seen[folder] || left[folder] != "" {
			continue
		}
		seen[folder] = true
		files, imported, err := read(root, folder)
		if err != nil {
			return nil, err
		}
		list = append(list, files...)
		queue = append(queue, imported...)
	}
	slices.SortFunc(list, func(a, b *Source) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// read reads the files of a folder that are built here, and the folders of this
// module that they import.
func read(root, folder string) (files Sources, imported []string, err error) {
	pkg, err := build.ImportDir(filepath.Join(root, filepath.FromSlash(folder)), 0)
	if err != nil {
		return nil, nil, fmt.Errorf("the instrumented packages: %w", err)
	}
	for _, name := range pkg.GoFiles {
		text, err := os.ReadFile(filepath.Join(pkg.Dir, name))
		if err != nil {
			return nil, nil, err
		}
		files = append(files, &Source{Path: path.Join(folder, name), Package: pkg.Name, Text: string(text)})
	}
	for _, target := range pkg.Imports {
		if own, ok := strings.CutPrefix(target, module); ok {
			imported = append(imported, own)
		}
	}
	return files, imported, nil
}

// Packages are the folders of the instrumented packages, with their names.
func (l Sources) Packages() map[string]string {
	all := map[string]string{}
	for _, f := range l {
		all[f.Folder()] = f.Package
	}
	return all
}

// Find is the file of a name that has a text, in whichever package it is. A name with a
// slash is a path below the root of the module.
func (l Sources) Find(name, text string) (*Source, error) {
	var found Sources
	for _, f := range l {
		if (f.Path == name || path.Base(f.Path) == name) && strings.Contains(f.Text, text) {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d files of %v are called %s and have the text below, and one must: name it as it is called now, with its folder if there are several\n%s",
			len(found), slices.Sorted(maps.Keys(l.Packages())), name, text)
	}
	return found[0], nil
}
