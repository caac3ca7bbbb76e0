package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`^#+ +(.+)$`)
	// omitted are the characters of a heading that its anchor leaves out.
	omitted = regexp.MustCompile(`[^\w\- ]`)
	inline  = regexp.MustCompile("`[^`]*`")
)

// DeadLinks lists the relative links of the documents that lead to no file or no heading.
func DeadLinks(root string, documents []Document) (dead []string) {
	anchors := map[string]map[string]bool{}
	for _, d := range documents {
		anchors[d.Path] = anchorsOf(d.Text)
	}
	for _, d := range documents {
		for number, line := range outsideOfCode(d.Text) {
			for _, m := range link.FindAllStringSubmatch(inline.ReplaceAllString(line, ""), -1) {
				name, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(m[1], ":") { // another site's
					continue
				}
				to := d.Path
				if name != "" {
					to = filepath.Join(filepath.Dir(d.Path), name)
				}
				var err error
				if anchors[to] == nil {
					_, err = os.Stat(filepath.Join(root, to))
				}
				if err != nil || anchor != "" && anchors[to] != nil && !anchors[to][anchor] {
					dead = append(dead, fmt.Sprintf("%s:%d: %s leads nowhere", d.Path, number, m[1]))
				}
			}
		}
	}
	return dead
}

func anchorsOf(text string) map[string]bool {
	all := map[string]bool{}
	for _, line := range outsideOfCode(text) {
		if h := heading.FindStringSubmatch(line); h != nil {
			all[strings.ReplaceAll(omitted.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
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
