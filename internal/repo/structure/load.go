package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/internal/repo/lint"
)

// listed is what the go command says of a package.
type listed struct {
	ImportPath, Dir, Name, Export     string
	GoFiles, CgoFiles, IgnoredGoFiles []string
	TestGoFiles, XTestGoFiles         []string
	Imports                           []string
	Module                            *struct{ Main bool }
}

// folder is the package's folder below the root of the module.
func (l *listed) folder() string {
	if l.ImportPath == lint.Module {
		return "."
	}
	return strings.TrimPrefix(l.ImportPath, lint.Module+"/")
}

// goList asks the go command, as if on Linux: what is measured must not depend on
// the machine.
func goList(ctx context.Context, root string, args ...string) ([]*listed, error) {
	command := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,Name,Export,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles,Imports,Module"}, args...)...) //nolint:gosec // words of ours
	command.Dir = root
	command.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64")
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, errs.Bytes())
	}
	var all []*listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		l := new(listed)
		if err := decoder.Decode(l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
}

// pkg is a package of the product with its types.
type pkg struct {
	*listed
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// house is the product, read: packages in the order of their imports, so that
// each comes behind those that it imports.
type house struct {
	fset *token.FileSet
	pkgs []*pkg
	// all are the packages of the module, also those that are not of the product.
	all []*listed
}

// load reads the product at root. What it needs of other modules comes from the
// compiler's export data, of its own packages it reads the source.
func load(ctx context.Context, root string) (*house, error) {
	h := &house{fset: token.NewFileSet()}
	var err error
	if h.all, err = goList(ctx, root, "./..."); err != nil {
		return nil, err
	}
	args := []string{"-deps", "-export"}
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		args = append(args, lint.AsThisProgram()) // what is compiled already
	}
	for _, l := range h.all {
		if isSeed(l.folder()) {
			args = append(args, l.ImportPath)
		}
	}
	closure, err := goList(ctx, root, args...)
	if err != nil {
		return nil, err
	}
	product := productOf(closure)
	exports := map[string]string{}
	own := map[string]*types.Package{}
	in := &both{own: own, others: importer.ForCompiler(h.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	for _, l := range closure {
		if l.Module == nil || !l.Module.Main {
			exports[l.ImportPath] = l.Export
			continue
		}
		p, err := h.check(l, in)
		if err != nil {
			return nil, err
		}
		own[l.ImportPath] = p.types
		if product[l.ImportPath] {
			h.pkgs = append(h.pkgs, p)
		}
	}
	return h, nil
}

// productOf are the seeds and what they import from internal/, directly or through
// another such package.
func productOf(closure []*listed) map[string]bool {
	product := map[string]bool{}
	for _, l := range slices.Backward(closure) { // importers first
		if isSeed(l.folder()) {
			product[l.ImportPath] = true
		}
		if !product[l.ImportPath] {
			continue
		}
		for _, path := range l.Imports {
			if strings.HasPrefix(path, lint.Module+"/internal/") {
				product[path] = true
			}
		}
	}
	return product
}

// check reads a package and finds its types.
func (h *house) check(l *listed, in types.Importer) (*pkg, error) {
	p := &pkg{listed: l, info: newInfo()}
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(h.fset, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	config := types.Config{Importer: in, Sizes: types.SizesFor("gc", "amd64")}
	var err error
	p.types, err = config.Check(l.ImportPath, h.fset, p.files, p.info)
	return p, err
}

// newInfo has a place for all that is asked of types.
func newInfo() *types.Info {
	return &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Types: map[ast.Expr]types.TypeAndValue{}, Instances: map[*ast.Ident]types.Instance{},
	}
}

// both imports packages of the module as they were read, and others as compiled.
type both struct {
	own    map[string]*types.Package
	others types.Importer
}

// Import finds a package by its path.
func (b *both) Import(path string) (*types.Package, error) {
	if p := b.own[path]; p != nil {
		return p, nil
	}
	return b.others.Import(path)
}
