package lint

import (
	"path"
	"regexp"
	"strings"
)

var (
	// link is one of a document's.
	link = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	// heading is the line of one, and unsaid what its anchor leaves out.
	heading = regexp.MustCompile(`^#+ +(.+)$`)
	unsaid  = regexp.MustCompile(`[^\w\- ]`)
	// inline is code within a line.
	inline = regexp.MustCompile("`[^`]*`")
)

// Links finds links from document to document, or to another file of the
// repository, that lead nowhere.
func Links(files []*File) []Violation {
	exist := map[string]bool{}
	anchors := map[string]map[string]bool{}
	for _, f := range files {
		exist[f.Path] = true
		for dir := f.Dir(); dir != "."; dir = path.Dir(dir) {
			exist[dir] = true
		}
		if strings.HasSuffix(f.Path, ".md") {
			anchors[f.Path] = anchorsOf(f)
		}
	}
	var found []Violation
	for _, f := range files {
		if anchors[f.Path] == nil {
			continue
		}
		for number, line := range outsideOfCode(f.Text) {
			for _, m := range link.FindAllStringSubmatch(inline.ReplaceAllString(line, ""), -1) {
				name, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(m[1], ":") || !isText(path.Join("x", name)) { // another site's, or not loaded
					continue
				}
				to := f.Path
				if name != "" {
					to = path.Join(f.Dir(), name)
				}
				if !exist[to] || anchor != "" && anchors[to] != nil && !anchors[to][anchor] {
					found = append(found, Violation{File: f.Path, Line: number, Text: m[1] + " leads nowhere"})
				}
			}
		}
	}
	return found
}

func anchorsOf(f *File) map[string]bool {
	all := map[string]bool{}
	for _, line := range outsideOfCode(f.Text) {
		if h := heading.FindStringSubmatch(line); h != nil {
			all[strings.ReplaceAll(unsaid.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
		}
	}
	return all
}

// outsideOfCode is the lines of a document, by number, without its fenced code.
func outsideOfCode(text string) map[int]string {
	lines := map[int]string{}
	code := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			lines[i+1] = line
		}
	}
	return lines
}
