package lint

import (
	"fmt"
	"go/parser"
	"go/token"
	"strings"
)

// Block is a fenced Go code block of a document.
type Block struct {
	// File and Line are where the code begins.
	File string
	Line int
	Code string
	// Output is the fenced block behind it, if that one is marked as output:
	// what the program prints.
	Output string
}

// GoBlocks lists the Go blocks of the Markdown files among files.
func GoBlocks(files []*File) []Block {
	var blocks []Block
	for _, f := range files {
		if strings.HasSuffix(f.Path, ".md") {
			blocks = append(blocks, blocksOf(f)...)
		}
	}
	return blocks
}

func blocksOf(f *File) []Block {
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

// Code finds Go blocks in documents that do not parse: as a file, as
// declarations or as statements.
func Code(files []*File) []Violation {
	var found []Violation
	for _, b := range GoBlocks(files) {
		if err := b.parse(); err != nil {
			found = append(found, Violation{File: b.File, Line: b.Line, Text: fmt.Sprintf("the Go code does not parse: %v", err)})
		}
	}
	return found
}

func (b Block) parse() error {
	forms := []string{"%s", "package p\n%s", "package p\nfunc _() {\n%s\n}"}
	if b.IsProgram() {
		forms = forms[:1]
	}
	var err error
	for _, form := range forms {
		if _, err = parser.ParseFile(token.NewFileSet(), "", fmt.Sprintf(form, b.Code), parser.SkipObjectResolution); err == nil {
			return nil
		}
	}
	return err
}
