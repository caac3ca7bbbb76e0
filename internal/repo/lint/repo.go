package lint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Module is the module path that the rules are about.
const Module = "github.com/fencepost-gpu/fencepost"

// Violation is one place where a rule is broken.
type Violation struct {
	// File is relative to the repository's root, with slashes.
	File string
	Line int
	Text string
}

// String is "file:line: text".
func (v Violation) String() string { return fmt.Sprintf("%s:%d: %s", v.File, v.Line, v.Text) }

// File is one text file of the repository.
type File struct {
	// Path is relative to the repository's root, with slashes.
	Path string
	Text string
	// Syntax and Fset are set for Go files.
	Syntax *ast.File
	Fset   *token.FileSet
}

// NewFile makes a File and parses it if it is Go.
func NewFile(name, text string) (*File, error) {
	f := &File{Path: name, Text: text}
	if !strings.HasSuffix(name, ".go") {
		return f, nil
	}
	f.Fset = token.NewFileSet()
	var err error
	f.Syntax, err = parser.ParseFile(f.Fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return f, err
}

// Dir is the folder of the file, "." for the root.
func (f *File) Dir() string { return path.Dir(f.Path) }

// IsGo reports whether the file is Go source.
func (f *File) IsGo() bool { return f.Syntax != nil }

// IsTest reports whether the file is compiled for tests only.
func (f *File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// at is a violation at a syntax node.
func (f *File) at(n ast.Node, format string, args ...any) Violation {
	return Violation{File: f.Path, Line: f.Fset.Position(n.Pos()).Line, Text: fmt.Sprintf(format, args...)}
}

// Root is the closest folder at or above dir that holds go.mod.
func Root(dir string) (string, error) {
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod in this folder or above it")
		}
		dir = parent
	}
}

// Load reads the text files of the repository at root. It passes over what
// .gitignore excludes, test data and files that are not text.
func Load(root string) ([]*File, error) {
	skip := ignoredFolders(root)
	var files []*File
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(name, root), string(filepath.Separator)))
		if d.IsDir() {
			if skip[rel] || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !isText(rel) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := NewFile(rel, string(text))
		files = append(files, f)
		return err
	})
	return files, err
}

// ignoredFolders are the folders that .gitignore names from the root: "/x/".
func ignoredFolders(root string) map[string]bool {
	skip := map[string]bool{".git": true}
	// A repository without the file ignores nothing more.
	text, _ := os.ReadFile(filepath.Join(root, ".gitignore"))
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "/") && strings.HasSuffix(line, "/") {
			skip[strings.Trim(line, "/")] = true
		}
	}
	return skip
}

// isText goes by name. Sums and the licence are text that nobody here writes.
func isText(name string) bool {
	base := path.Base(name)
	if base == "go.sum" || base == "LICENSE" {
		return false
	}
	switch path.Ext(base) {
	case ".gz", ".png", ".ico", ".test", ".out", ".cubin", ".fatbin", ".so", ".wasm":
		return false
	}
	return true
}
