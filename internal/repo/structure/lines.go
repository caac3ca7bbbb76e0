package main

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
)

// size is an amount of code. Lines are those with a word of Go on them: neither
// empty nor a comment alone.
type size struct{ files, lines int }

func (s *size) add(o size) {
	s.files += o.files
	s.lines += o.lines
}

// sizes are those of a package's files for every system, tests apart.
func sizes(l *listed) (source, tests size, err error) {
	if source, err = sizeOf(l.Dir, l.GoFiles, l.CgoFiles, l.IgnoredGoFiles); err == nil {
		tests, err = sizeOf(l.Dir, l.TestGoFiles, l.XTestGoFiles)
	}
	return source, tests, err
}

func sizeOf(dir string, lists ...[]string) (s size, err error) {
	for _, name := range slices.Concat(lists...) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return s, err
		}
		s.add(size{1, codeLines(text)})
	}
	return s, nil
}

func codeLines(text []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0) // passes over comments
	lines, last := 0, 0
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // not written
		}
		first := file.Line(pos)
		end := file.Line(pos + token.Pos(len(literal)))
		lines += end - max(first-1, last)
		last = end
	}
}
