package lint

import (
	"strconv"
	"strings"
)

// Examples finds imports of an example, tests included, that a module of its own
// could not have: of this module's internal packages. An example may have internal
// packages below its own folder, which are copied with it.
func Examples(files []*File) []Violation {
	var found []Violation
	for _, f := range files {
		example, ok := exampleOf(f.Dir())
		if !ok || !f.IsGo() {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			if own, isOwn := ownFolder(target); isOwn && isInternal(own) && !under(own, example) {
				found = append(found, f.at(spec, "%s imports %s, which nobody can who copies the example", f.Dir(), own))
			}
		}
	}
	return found
}

// exampleOf is the folder of the example that dir belongs to.
func exampleOf(dir string) (string, bool) {
	parts := strings.SplitN(dir, "/", 3)
	if len(parts) < 2 || parts[0] != "examples" {
		return "", false
	}
	return parts[0] + "/" + parts[1], true
}

func isInternal(own string) bool { return strings.Contains("/"+own+"/", "/internal/") }
