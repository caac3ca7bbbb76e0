package lint

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Paths finds mentions of files and folders of the repository that are not there, in
// documents, comments and scripts. A mention begins with an uppermost folder; what
// stands behind a folder's name as in "cuda/driver.Driver" is a name of its package.
// Tests may name what they make up, and CHANGELOG.md what once was.
func Paths(files []*File) []Violation {
	exist := map[string]bool{}
	tops := map[string]bool{}
	for _, f := range files {
		exist[f.Path] = true
		for dir := f.Dir(); dir != "."; dir = path.Dir(dir) {
			exist[dir] = true
		}
		if top, _, below := strings.Cut(f.Path, "/"); below {
			tops[regexp.QuoteMeta(top)] = true
		}
	}
	if len(tops) == 0 {
		return nil
	}
	mention := regexp.MustCompile(`(?:^|[^\w./@$-])((?:` + strings.Join(slices.Sorted(maps.Keys(tops)), "|") + `)/[\w./-]*\w)`)
	var found []Violation
	for _, f := range files {
		for line, text := range prose(f) {
			for _, m := range mention.FindAllStringSubmatch(text, -1) {
				if named := strings.TrimSuffix(m[1], "/..."); !there(exist, f.Dir(), named) {
					found = append(found, Violation{File: f.Path, Line: line, Text: named + " is not there: say where it is now"})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b Violation) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return found
}

// there reports whether a mention in a file of folder dir names what exists. Test
// data and files that are no text are not loaded.
func there(exist map[string]bool, dir, named string) bool {
	if strings.Contains(named, "/testdata") || !isText(named) || exist[named] || exist[path.Join(dir, named)] {
		return true
	}
	folder, name, ok := strings.Cut(path.Base(named), ".")
	return ok && name != "go" && name != "md" && exist[path.Join(path.Dir(named), folder)]
}

// prose is the text that tells of the repository, by line: the comments of Go files,
// and documents, scripts and configurations as they are.
func prose(f *File) map[int]string {
	lines := map[int]string{}
	switch {
	case f.IsTest() || f.Path == "CHANGELOG.md":
	case f.IsGo():
		for _, group := range f.Syntax.Comments {
			for _, c := range group.List {
				for i, text := range strings.Split(c.Text, "\n") {
					lines[f.Fset.Position(c.Pos()).Line+i] = strings.TrimPrefix(text, "//")
				}
			}
		}
	case slices.Contains([]string{"", ".md", ".yml", ".yaml"}, path.Ext(f.Path)):
		for i, text := range strings.Split(f.Text, "\n") {
			lines[i+1] = text
		}
	}
	return lines
}
