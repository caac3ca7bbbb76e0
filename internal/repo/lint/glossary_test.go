package lint

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostTerms is how many terms the glossary may have: more than that nobody reads.
const mostTerms = 40

// glossaryRow is a term, its meaning and its file.
var glossaryRow = regexp.MustCompile("^\\| ([^|`]+) \\| ([^|]+) \\| `([^`]+)` \\|$")

// TestTheGlossaryIsShortAndLeadsToFiles counts the terms, and looks for the file
// that each names.
func TestTheGlossaryIsShortAndLeadsToFiles(t *testing.T) {
	_, files := repository(t)
	at := slices.IndexFunc(files, func(f *File) bool { return f.Path == "docs/glossary.md" })
	if at < 0 {
		t.Fatal("there is no docs/glossary.md")
	}
	_, table, _ := strings.Cut(files[at].Text, "| --- | --- | --- |\n")
	var terms []string
	for line := range strings.Lines(table) {
		row := glossaryRow.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if row == nil {
			t.Errorf("not a term, its meaning and one file: %q", line)
			continue
		}
		if slices.Contains(terms, row[1]) {
			t.Errorf("%q has two meanings", row[1])
		}
		terms = append(terms, row[1])
		if !slices.ContainsFunc(files, func(f *File) bool { return f.Path == row[3] }) {
			t.Errorf("%q lives in %s, which there is not", row[1], row[3])
		}
	}
	if len(terms) == 0 || len(terms) > mostTerms {
		t.Errorf("%d terms, and there may be 1 to %d", len(terms), mostTerms)
	}
}
