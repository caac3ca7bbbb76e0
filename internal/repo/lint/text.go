package lint

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// MaxLines is the length of the longest Go file that is not a test. It leaves
// room for one whole subject; most files are much shorter.
const MaxLines = 500

// Length finds Go files that are too long to be read in one go.
func Length(files []*File) []Violation {
	var found []Violation
	for _, f := range files {
		if n := strings.Count(f.Text, "\n"); f.IsGo() && !f.IsTest() && n > MaxLines {
			found = append(found, Violation{File: f.Path, Line: n, Text: fmt.Sprintf("%d lines, at most %d: split it", n, MaxLines)})
		}
	}
	return found
}

// MaxFiles is how many sources a package of the product has at most.
const MaxFiles = 30

// crowded are the packages that may have more, and how many: the simulated device is
// one subject of many operations.
var crowded = map[string]int{"cuda/sim": 50}

// Crowded finds packages of the product with more files than a reader of the folder
// takes in.
func Crowded(files []*File) []Violation {
	count := map[string]int{}
	for _, f := range files {
		if f.IsGo() && !f.IsTest() && isProduct(f.Dir()) {
			count[f.Dir()]++
		}
	}
	var found []Violation
	for _, dir := range slices.Sorted(maps.Keys(count)) {
		if most := max(MaxFiles, crowded[dir]); count[dir] > most {
			found = append(found, Violation{File: dir, Line: 1, Text: fmt.Sprintf("%d source files, at most %d: put together what is one subject, or divide the package", count[dir], most)})
		}
	}
	return found
}

// The patterns are put together from halves, so that this file passes.
var (
	unfinished  = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	machinePath = regexp.MustCompile(`(^|[^\w.-])/(wo` + `rk|ro` + `ot|ho` + `me/\w+)/`)

	// One of these is in every line that matches. They are looked for first,
	// because expressions take half a minute under the race detector.
	signs = []string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/"}
)

// Words finds marks of unfinished work, and paths that exist on the author's
// machine only, in every text file.
func Words(files []*File) []Violation {
	var found []Violation
	for _, f := range files {
		number := 0
		for line := range strings.Lines(f.Text) {
			number++
			if !slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(line, sign) }) {
				continue
			}
			if m := unfinished.FindString(line); m != "" {
				found = append(found, Violation{File: f.Path, Line: number, Text: m + ": finish it or open an issue"})
			}
			if m := machinePath.FindString(line); m != "" {
				found = append(found, Violation{File: f.Path, Line: number, Text: strings.TrimSpace(m) + " is a path of one machine"})
			}
		}
	}
	return found
}
