package lint

import (
	"slices"
	"strconv"
	"strings"
)

// layer is a rule about one part of the tree.
type layer struct {
	// prefix is the folder that the rule covers, with all below it.
	prefix string
	// may are the folders of this module that it may import from.
	may []string
	// stdOnly forbids other modules too.
	stdOnly bool
}

// layers are tried in order; the first whose prefix fits applies. A decorator
// may also import from its own folder, which no entry needs to say.
var layers = []layer{
	{prefix: "core", may: []string{"core"}, stdOnly: true},
	{prefix: "decorators", may: []string{"core"}},
	{prefix: "telemetry", may: []string{"core", "telemetry"}},
	{prefix: "cuda", may: []string{"core", "cuda"}},
}

// vendors are the modules whose types stay in the packages of vendorFolders.
var (
	vendors       = []string{"go.opentelemetry.io/", "github.com/prometheus/"}
	vendorFolders = []string{"telemetry", "cmd", "examples", "internal/e2e", "internal/operators", "internal/repo"}
)

// Imports checks the direction of imports in non-test files. Packages under
// internal/ are open to all but core, and transparent: what a layer reaches
// through one counts as if it imported it itself.
func Imports(files []*File) []Violation {
	graph := importGraph(files)
	var found []Violation
	for _, f := range files {
		if !f.IsGo() || f.IsTest() {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue
			}
			if why := forbidden(f.Dir(), target, graph); why != "" {
				found = append(found, f.at(spec, "%s", why))
			}
		}
	}
	return found
}

// importGraph maps each folder of the module to those it imports from.
func importGraph(files []*File) map[string][]string {
	graph := map[string][]string{}
	for _, f := range files {
		if !f.IsGo() || f.IsTest() {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			if own, ok := ownFolder(target); ok {
				graph[f.Dir()] = append(graph[f.Dir()], own)
			}
		}
	}
	return graph
}

// forbidden says why the package in folder dir must not import target, or
// nothing if it may.
func forbidden(dir, target string, graph map[string][]string) string {
	own, isOwn := ownFolder(target)
	if !isOwn && isVendor(target) && dir != "." && !slices.ContainsFunc(vendorFolders, func(p string) bool { return under(dir, p) }) {
		return target + " is imported outside the root package and " + strings.Join(vendorFolders, "/, ") + "/"
	}
	i := slices.IndexFunc(layers, func(l layer) bool { return under(dir, l.prefix) })
	if i < 0 {
		return ""
	}
	rule := layers[i]
	if !isOwn {
		if rule.stdOnly && strings.Contains(strings.SplitN(target, "/", 2)[0], ".") {
			return dir + " imports " + target + ": this layer imports the standard library only"
		}
		return ""
	}
	return forbiddenOwn(dir, own, rule, graph)
}

func forbiddenOwn(dir, own string, rule layer, graph map[string][]string) string {
	if under(own, "internal") && !rule.stdOnly {
		for _, reached := range throughInternal(own, graph) {
			if !permitted(dir, reached, rule) {
				return dir + " reaches " + reached + " through " + own
			}
		}
		return ""
	}
	if !permitted(dir, own, rule) {
		return dir + " must not import " + own
	}
	return ""
}

func permitted(dir, own string, rule layer) bool {
	return sameSubtree(dir, own) || slices.ContainsFunc(rule.may, func(p string) bool { return under(own, p) })
}

// sameSubtree is true for a package and those below the same two folders, so
// decorators/budget may use what lies below it and nothing of its siblings.
func sameSubtree(dir, own string) bool {
	parts := strings.SplitN(dir, "/", 3)
	return len(parts) >= 2 && under(own, parts[0]+"/"+parts[1])
}

// throughInternal lists what an internal package reaches outside internal/.
func throughInternal(start string, graph map[string][]string) []string {
	var reached []string
	seen := map[string]bool{start: true}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		for _, next := range graph[queue[0]] {
			switch {
			case seen[next]:
			case under(next, "internal"):
				queue = append(queue, next)
			default:
				reached = append(reached, next)
			}
			seen[next] = true
		}
	}
	return reached
}

func ownFolder(target string) (string, bool) {
	if target == Module {
		return ".", true
	}
	return strings.CutPrefix(target, Module+"/")
}

func isVendor(target string) bool {
	return slices.ContainsFunc(vendors, func(v string) bool { return strings.HasPrefix(target, v) })
}

func under(dir, prefix string) bool { return dir == prefix || strings.HasPrefix(dir, prefix+"/") }
