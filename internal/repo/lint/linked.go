package lint

import (
	"slices"
	"strconv"
)

// The packages of this module that an application gets with the root package:
// everything below the product's folders but what tests a resource or a driver,
// and the internal packages that are listed.
var (
	productFolders  = []string{".", "core", "cuda", "decorators", "telemetry"}
	testingFolders  = []string{"core/coretest", "cuda/driver/drivertest", "cuda/fenceproof"}
	productInternal = []string{"internal/blocktable", "internal/deadline", "internal/dynlib", "internal/fence", "internal/findings", "internal/health", "internal/launchkind", "internal/listeners", "internal/quick",
		"internal/monotime", "internal/operators", "internal/ring", "internal/terminal", "internal/version"}
)

// Linked finds imports that would put more into the binary of each application
// than the product: the kernels of the demo, a test suite, a proof. It follows
// the imports of the root package.
func Linked(files []*File) []Violation {
	reached := reachable(".", importGraph(files))
	var found []Violation
	for _, f := range files {
		if !f.IsGo() || f.IsTest() || !reached[f.Dir()] || !isProduct(f.Dir()) {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			if own, ok := ownFolder(target); ok && !isProduct(own) {
				found = append(found, f.at(spec, "every application would link %s: let the program that needs it import it", own))
			}
		}
	}
	return found
}

// isProduct reports whether an application may link the package in folder dir.
func isProduct(dir string) bool {
	below := func(prefix string) bool { return under(dir, prefix) }
	return slices.Contains(productInternal, dir) || slices.ContainsFunc(productFolders, below) && !slices.ContainsFunc(testingFolders, below)
}

// reachable is the folder start and all that its packages import, and so on.
func reachable(start string, graph map[string][]string) map[string]bool {
	seen := map[string]bool{start: true}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		for _, next := range graph[queue[0]] {
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return seen
}
