package api

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Folder is where the listing is checked in, below the root of the module.
const Folder = "internal/repo/api/testdata"

// fileOf is the name of a package's file: its folder with dots for slashes.
func fileOf(folder string) string {
	if folder == "." {
		return "fencepost.txt"
	}
	return strings.ReplaceAll(folder, "/", ".") + ".txt"
}

// Write writes the listing into a folder, and removes files there of packages that
// are gone.
func (l Listing) Write(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for folder, lines := range l {
		if err := os.WriteFile(filepath.Join(dir, fileOf(folder)), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // texts for everybody
			return err
		}
	}
	return nil
}

// Changes compares the listing with the files in a folder: the lines that are new
// there begin with "+", those that are gone with "-", with the package before them.
func (l Listing) Changes(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	now := map[string][]string{}
	for folder, lines := range l {
		now[fileOf(folder)] = lines
	}
	files := maps.Clone(now)
	for _, path := range paths {
		files[filepath.Base(path)] = nil
	}
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		before := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		changes = append(changes, difference(strings.TrimSuffix(name, ".txt"), before, now[name])...)
	}
	return changes, nil
}

// difference is what is in one of the sorted lists only.
func difference(pkg string, before, now []string) (changes []string) {
	for _, line := range before {
		if _, found := slices.BinarySearch(now, line); !found && line != "" {
			changes = append(changes, "- "+pkg+": "+line)
		}
	}
	for _, line := range now {
		if _, found := slices.BinarySearch(before, line); !found {
			changes = append(changes, "+ "+pkg+": "+line)
		}
	}
	return changes
}
