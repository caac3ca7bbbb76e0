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
	var open *Block
	number := 0
	for line := range strings.Lines(f.Text) {
		number++
		fence := strings.TrimSpace(line)
		switch {
		case open == nil && fence == "```go":
			open = &Block{File: f.Path, Line: number + 1}
		case open != nil && fence == "```":
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.Code += line
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
