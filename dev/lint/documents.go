package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Document is one Markdown file of the repository. Its path is below the root.
type Document struct{ Path, Text string }

// Documents reads the Markdown files that git knows below root.
func Documents(root string) (all []Document, err error) {
	command := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md") //nolint:noctx // it reads an index
	command.Dir = root
	names, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Fields(string(names)) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted, and not yet committed
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Document{name, string(text)})
	}
	return all, nil
}

// Block is a fenced Go code block of a document.
type Block struct {
	// File and Line are where the code begins.
	File string
	Line int
	Code string
	// Beside are other files of its package, by name, for what a test adds to the program.
	Beside map[string]string
	// Output is the fenced block behind it, if that one is marked as output:
	// what the program prints.
	Output string
}

// Blocks lists the Go blocks of a document.
func (f Document) Blocks() []Block {
	var blocks []Block
	var into *string // what the lines belong to, nil outside of all fences
	number := 0
	for line := range strings.Lines(f.Text) {
		number++
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case into != nil && isFence && fence == "":
			into = nil
		case into != nil:
			*into += line
		case isFence && fence == "go":
			blocks = append(blocks, Block{File: f.Path, Line: number + 1})
			into = &blocks[len(blocks)-1].Code
		case isFence && fence == "output" && len(blocks) > 0:
			into = &blocks[len(blocks)-1].Output
		case isFence:
			into = new(string)
		}
	}
	return blocks
}

// IsProgram reports whether the block is a whole file, which can be compiled.
func (b Block) IsProgram() bool {
	_, err := parser.ParseFile(token.NewFileSet(), b.File, b.Code, parser.PackageClauseOnly)
	return err == nil
}

// Parse reports why the block is neither a file nor declarations nor statements of Go.
func (b Block) Parse() error {
	_, _, err := b.parsed()
	return err
}

// parsed is the block as a file, whose positions are those in the document.
func (b Block) parsed() (*ast.File, *token.FileSet, error) {
	forms := []string{"%s", "package p\n%s", "package p\nfunc _() {\n%s\n}"}
	if b.IsProgram() {
		forms = forms[:1]
	}
	var err error
	for _, form := range forms {
		fset := token.NewFileSet()
		var file *ast.File
		code := fmt.Sprintf("//line %s:%d\n%s", b.File, b.Line, b.Code)
		if file, err = parser.ParseFile(fset, "", fmt.Sprintf(form, code), parser.SkipObjectResolution); err == nil {
			return file, fset, nil
		}
	}
	return nil, nil, err
}
