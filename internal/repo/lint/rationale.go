package lint

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// mostOfAnswer is how many lines a question of a RATIONALE.md and its answer have
// together: a decision that needs more is several, or belongs into a page.
const mostOfAnswer = 12

// question is the first line of an answer.
var question = regexp.MustCompile(`^\*\*(.+)\*\*$`)

// Rationales looks at the pages RATIONALE.md: each question is asked once in the
// repository, has an answer of at most [mostOfAnswer] lines directly below it, and
// the first page links the others.
func Rationales(files []*File) []Violation {
	var found []Violation
	asked := map[string]string{} // where each question is
	first := ""
	for _, f := range files {
		if f.Path == "RATIONALE.md" {
			first = f.Text
		}
	}
	for _, f := range files {
		if path.Base(f.Path) != "RATIONALE.md" {
			continue
		}
		if f.Path != "RATIONALE.md" && !strings.Contains(first, "]("+f.Path+")") {
			found = append(found, Violation{File: f.Path, Line: 1, Text: "RATIONALE.md does not link this page"})
		}
		lines := strings.Split(f.Text, "\n")
		for i, line := range lines {
			q := question.FindStringSubmatch(line)
			if q == nil {
				continue
			}
			if why := badAnswer(lines[i:]); why != "" {
				found = append(found, Violation{File: f.Path, Line: i + 1, Text: why})
			}
			if at := asked[q[1]]; at != "" {
				found = append(found, Violation{File: f.Path, Line: i + 1, Text: "the question stands at " + at + " too"})
			}
			asked[q[1]] = fmt.Sprintf("%s:%d", f.Path, i+1)
		}
	}
	return found
}

// badAnswer says what is wrong with the question in the first of the lines and the
// answer behind it.
func badAnswer(lines []string) string {
	count := 1
	for count < len(lines) && lines[count] != "" && !question.MatchString(lines[count]) {
		count++
	}
	switch {
	case count == 1:
		return "the question has no answer below it"
	case count > mostOfAnswer:
		return fmt.Sprintf("question and answer have %d lines, and may have %d", count, mostOfAnswer)
	case !strings.HasSuffix(strings.TrimSuffix(lines[0], "**"), "?"):
		return "the question does not end in a question mark"
	}
	return ""
}
