package lint

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// folderRow is a row of the tables of folders, and folderName a folder in its first
// column.
var (
	folderRow  = regexp.MustCompile("(?m)^\\| (`[^|]+) \\|")
	folderName = regexp.MustCompile("`([^`]+?)/?`")
)

// TestTheArchitectureNamesEveryFolder looks for the folder of each package, or one
// above it, in the tables of docs/architecture.md.
func TestTheArchitectureNamesEveryFolder(t *testing.T) {
	_, files := repository(t)
	exist := map[string]bool{}
	packages := map[string]bool{}
	var page string
	for _, f := range files {
		exist[f.Path] = true
		for dir := f.Dir(); !exist[dir]; dir = path.Dir(dir) {
			exist[dir] = true
		}
		if f.IsGo() {
			packages[f.Dir()] = true
		}
		if f.Path == "docs/architecture.md" {
			page = f.Text
		}
	}
	_, page, _ = strings.Cut(page, "\n## The folders\n")
	page, _, _ = strings.Cut(page, "\n## ")
	named := map[string]bool{}
	for _, row := range folderRow.FindAllStringSubmatch(page, -1) {
		for _, folder := range folderName.FindAllStringSubmatch(row[1], -1) {
			if named[folder[1]] = true; !exist[folder[1]] {
				t.Errorf("docs/architecture.md names %s, which there is not", folder[1])
			}
		}
	}
	if len(named) < 20 {
		t.Fatalf("%d folders were found", len(named))
	}
	for dir := range packages {
		at := dir
		for at != "." && !named[at] {
			at = path.Dir(at)
		}
		if at == "." && dir != "." {
			t.Errorf("docs/architecture.md does not name %s, nor a folder above it", dir)
		}
	}
}
