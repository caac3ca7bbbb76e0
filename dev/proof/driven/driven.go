// Package driven has the one list of what the proofs of the fences take hold of: the
// packages in which the overlay replaces locks and atomics, the mutants break
// the code, and faults are planted. The list is derived: it is package cuda and what
// that imports from this module. So code that moves into a package of its own goes on
// being driven and mutated.
//
// Driven are the locks and atomics that package ctl has: Mutex, Pool and the atomic types. A file
// that names another of the standard library's (RWMutex, Once, Cond, WaitGroup) does not build in
// the overlay, whose error names it. Map and OnceFunc build there as they are, and no
// interleaving of them is tried: a Map must be in [Kept]. What goes by channels, or by package
// time, is not driven either.
package driven

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the path of this module, with a slash.
const module = "github.com/fencepost-gpu/fencepost/"

// entry is the package that the proofs run.
const entry = "cuda"

// left are packages of the closure that are not on the list, and why.
var left = map[string]string{
	"cuda/driver": "the seam at which the proofs put a device of their own",
}

// Kept are the files of the listed packages that keep imports of the standard
// library's locks or atomics, or a sync.Map, and why. A file with one of these that is neither
// driven nor here fails a test, and so does an entry that is not needed any more.
var Kept = map[string]map[string]string{
	"internal/fence/counts.go":       {"sync/atomic": "what it has of them is statistics"},
	"core/ids.go":                    {"sync/atomic": "counters of numbers, which every run of a program resets"},
	"core/runtime.go":                {"sync/atomic": "the facade above the resource that the proofs call"},
	"internal/monotime/line.go":      {"sync": "no fence follows from the time", "sync/atomic": "no fence follows from the time"},
	"internal/monotime/timeofday.go": {"sync/atomic": "no fence follows from the time"},
	"cuda/hostbuffer.go":             {"sync.Map": "it keeps pinners reachable, and nobody reads it"},
}

// File is a file of the list, tests apart.
type File struct {
	// Path is below the root of the module, with slashes.
	Path string
	// Package is the name in the package clause.
	Package string
	Text    string
}

// Folder is that of the file's package.
func (f *File) Folder() string { return path.Dir(f.Path) }

// List are the files of the listed packages of the module at root, sorted by path.
type List []*File

// Files reads the list.
func Files(root string) (List, error) {
	var list List
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
	slices.SortFunc(list, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// read reads the files of a folder that are built here, and the folders of this
// module that they import.
func read(root, folder string) (files List, imported []string, err error) {
	pkg, err := build.ImportDir(filepath.Join(root, filepath.FromSlash(folder)), 0)
	if err != nil {
		return nil, nil, fmt.Errorf("the driven packages: %w", err)
	}
	for _, name := range pkg.GoFiles {
		text, err := os.ReadFile(filepath.Join(pkg.Dir, name))
		if err != nil {
			return nil, nil, err
		}
		files = append(files, &File{Path: path.Join(folder, name), Package: pkg.Name, Text: string(text)})
	}
	for _, target := range pkg.Imports {
		if own, ok := strings.CutPrefix(target, module); ok {
			imported = append(imported, own)
		}
	}
	return files, imported, nil
}

// Packages are the folders on the list, sorted, with the names of the packages.
func (l List) Packages() map[string]string {
	all := map[string]string{}
	for _, f := range l {
		all[f.Folder()] = f.Package
	}
	return all
}

// Find is the file of a name that has a text, in whichever package it is. A name with a
// slash is a path below the root of the module.
func (l List) Find(name, text string) (*File, error) {
	var found List
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

// Locks are the imports of the standard library's locks and atomics in a file's text, and
// "sync.Map" if it names that.
func Locks(text string) ([]string, error) {
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
