package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// example is the text of files by path, and the violations that one rule must
// find there: none for a good example.
type example struct {
	files map[string]string
	want  []string
}

// check runs a rule over examples.
func check(t *testing.T, rule func([]*File) []Violation, examples map[string]example) {
	t.Helper()
	for name, e := range examples {
		t.Run(name, func(t *testing.T) {
			var files []*File
			for path, text := range e.files {
				f, err := NewFile(path, text)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			var got []string
			for _, v := range rule(files) {
				got = append(got, v.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, e.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(e.want, "\n"))
			}
		})
	}
}

// one is a single file.
func one(path, text string) map[string]string { return map[string]string{path: text} }

// importing is a file in the package of dir that imports the targets; "~/"
// stands for this module.
func importing(dir string, targets ...string) (path, text string) {
	text = "package p\n"
	for _, target := range targets {
		text += fmt.Sprintf("import _ %q\n", strings.Replace(target, "~", Module, 1))
	}
	return dir + "/p.go", text
}

func TestImportsKeepTheirDirection(t *testing.T) {
	bad := func(dir, target, why string) example {
		path, text := importing(dir, target)
		return example{one(path, text), []string{path + ":2: " + why}}
	}
	good := func(dir string, targets ...string) example {
		path, text := importing(dir, targets...)
		return example{one(path, text), nil}
	}
	check(t, Imports, map[string]example{
		"core and std":              good("core/coretest", "context", "encoding/json", "~/core"),
		"core and another module":   bad("core", "github.com/google/uuid", "core imports github.com/google/uuid: this layer imports the standard library only"),
		"core and internal":         bad("core", "~/internal/x", "core must not import internal/x"),
		"core and cuda":             bad("core", "~/cuda", "core must not import cuda"),
		"decorator and core":        good("decorators/budget", "~/core", "~/internal/launchkind", "~/decorators/budget/ledger"),
		"decorator and its sibling": bad("decorators/budget", "~/decorators/logging", "decorators/budget must not import decorators/logging"),
		"decorator and cuda":        bad("decorators/budget", "~/cuda/driver", "decorators/budget must not import cuda/driver"),
		"decorator and telemetry":   bad("decorators/budget", "~/telemetry", "decorators/budget must not import telemetry"),
		"decorator and the root":    bad("decorators/budget", "~", "decorators/budget must not import ."),
		"cuda and its parts":        good("cuda/sim", "~/core", "~/cuda/driver", "github.com/jackc/puddle/v2"),
		"cuda and a decorator":      bad("cuda", "~/decorators/budget", "cuda must not import decorators/budget"),
		"telemetry and OTel":        good("telemetry", "~/core", "go.opentelemetry.io/otel", "github.com/prometheus/client_golang/prometheus"),
		"telemetry and cuda":        bad("telemetry", "~/cuda", "telemetry must not import cuda"),
		"root and everything":       {map[string]string{"f.go": "package p\nimport _ \"go.opentelemetry.io/otel\"\nimport _ \"" + Module + "/cuda\"\n"}, nil},
		"cmd and everything":        good("cmd/fencepost", "~", "~/telemetry", "go.opentelemetry.io/otel/sdk/trace"),
		"OTel in a decorator":       bad("decorators/budget", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel is imported outside the root package and telemetry/, cmd/, examples/, internal/e2e/, internal/operators/, internal/repo/"),
		"Prometheus in internal":    bad("internal/x", "github.com/prometheus/client_golang/prometheus", "github.com/prometheus/client_golang/prometheus is imported outside the root package and telemetry/, cmd/, examples/, internal/e2e/, internal/operators/, internal/repo/"),
		"tests may":                 {one("core/a_test.go", "package core\nimport _ \"pgregory.net/rapid\"\n"), nil},
	})
}

func TestExamplesImportWhatAModuleOfTheirOwnCould(t *testing.T) {
	good, goodText := importing("examples/a/internal/x", "~", "~/cuda", "~/examples/a/internal/y", "context")
	elsewhere, elsewhereText := importing("cmd/fencepost", "~/internal/demo")
	bad, badText := importing("examples/a/internal/x", "~/internal/demo", "~/examples/b/internal/y", "~/cuda/internal/z")
	check(t, Examples, map[string]example{
		"what is public or its own": {one(good, goodText), nil},
		"what is no example":        {one(elsewhere, elsewhereText), nil},
		"what is internal": {one(bad, badText), []string{
			bad + ":2: examples/a/internal/x imports internal/demo, which nobody can who copies the example",
			bad + ":3: examples/a/internal/x imports examples/b/internal/y, which nobody can who copies the example",
			bad + ":4: examples/a/internal/x imports cuda/internal/z, which nobody can who copies the example",
		}},
	})
}

func TestImportsSeeThroughInternalPackages(t *testing.T) {
	decorator, decoratorText := importing("decorators/budget", "~/internal/a")
	a, aText := importing("internal/a", "~/internal/b")
	b, bText := importing("internal/b", "~/cuda", "~/internal/a", "~/core")
	check(t, Imports, map[string]example{"two steps": {
		map[string]string{decorator: decoratorText, a: aText, b: bText},
		[]string{"decorators/budget/p.go:2: decorators/budget reaches cuda through internal/a"},
	}})
}

func TestApplicationsLinkTheProductOnly(t *testing.T) {
	const why = ": every application would link "
	const advice = ": let the program that needs it import it"
	_, rootText := importing(".", "~/cuda", "~/internal/findings", "~/internal/demo", "context")
	cuda, cudaText := importing("cuda", "~/core/coretest", "~/core")
	found, foundText := importing("internal/findings", "~/traces")
	demo, demoText := importing("internal/demo", "~/internal/traceio/replay")
	command, commandText := importing("cmd/fencepost", "~", "~/internal/demo")
	const root = "p.go"
	check(t, Linked, map[string]example{
		"through the product": {map[string]string{root: rootText, cuda: cudaText, found: foundText, demo: demoText, command: commandText}, []string{
			cuda + ":2" + why + "core/coretest" + advice,
			found + ":2" + why + "traces" + advice,
			root + ":4" + why + "internal/demo" + advice,
		}},
		"what the root does not reach": {map[string]string{command: commandText, cuda: cudaText}, nil},
		"tests may":                    {one("a_test.go", "package p\nimport _ \""+Module+"/internal/demo\"\n"), nil},
	})
}

func TestDecoratorsEmbedNothing(t *testing.T) {
	const embeds = "package p\ntype R struct {\n\tcore.Resource\n\tnamed int\n}\nfunc (r *R) PrepareUse() {}\n"
	check(t, Embedded, map[string]example{
		"interface":           {one("decorators/x/r.go", embeds), []string{"decorators/x/r.go:3: R has an anonymous field: name it and spell out what it does"}},
		"lock":                {one("decorators/x/r.go", "package p\ntype r struct{ sync.Mutex }\n"), []string{"decorators/x/r.go:2: r has an anonymous field: name it and spell out what it does"}},
		"nested struct":       {one("decorators/x/r.go", "package p\ntype r struct{ in struct{ *T } }\n"), []string{"decorators/x/r.go:2: r has an anonymous field: name it and spell out what it does"}},
		"generic resource":    {one("telemetry/r.go", "package p\ntype R[T any] struct{ core.Resource }\nfunc (r *R[T]) PrepareUse() {}\n"), []string{"telemetry/r.go:2: R has an anonymous field: name it and spell out what it does"}},
		"telemetry resource":  {one("telemetry/r.go", embeds), []string{"telemetry/r.go:3: R has an anonymous field: name it and spell out what it does"}},
		"telemetry otherwise": {one("telemetry/r.go", "package p\ntype s struct{ sync.Mutex }\n"), nil},
		"elsewhere":           {one("core/r.go", "package p\ntype s struct{ sync.Mutex }\n"), nil},
		"named fields":        {one("decorators/x/r.go", "package p\ntype R struct{ upstream core.Resource }\n"), nil},
	})
}

func TestLibrariesDoNotPanic(t *testing.T) {
	const panics = "package p\nfunc f() {\n\tpanic(\"no\")\n}\n"
	const want = ":3: panic in library code: return an error, or mark it with // lint:repanic or // lint:recovered if it is one"
	check(t, Panics, map[string]example{
		"core":      {one("core/sub/f.go", panics), []string{"core/sub/f.go" + want}},
		"root":      {one("f.go", panics), []string{"f.go" + want}},
		"recovered": {one("cuda/f.go", "package p\nfunc f() {\n\tdefer func() { _ = recover() }()\n\tpanic(1) // lint:recovered\n}\n"), nil},
		"claimed":   {one("cuda/f.go", "package p\nfunc f() {\n\tpanic(1) // lint:recovered\n}\n"), []string{"cuda/f.go:3: nothing in this package recovers"}},
		"marked":    {one("cuda/f.go", "package p\nfunc f() {\n\tpanic(r) // lint:repanic\n}\n"), nil},
		"test":      {one("core/f_test.go", panics), nil},
		"command":   {one("cmd/fencepost/f.go", panics), nil},
		"helper":    {one("core/coretest/f.go", panics), nil},
		"word":      {one("core/f.go", "package p\n\n// f does not panic(\"x\").\nfunc f() {}\n"), nil},
	})
}

func TestLongTestsRunSomewhere(t *testing.T) {
	const asks = "package p\nfunc f() bool { return testing." + "Short() }\n"
	leaves := "package p\nfunc f(t *testing.T) { t.Skip(\"" + leftToCheck + "\") }\n"
	check(t, Short, map[string]example{
		"in a test":        {one("a/f_test.go", asks), nil},
		"in a helper":      {one("a/f.go", asks), []string{"a/f.go:2: testing.Short outside a _test.go file: scripts/test would not run its callers' tests whole"}},
		"left":             {map[string]string{"a/f_test.go": asks, "a/g_test.go": leaves}, nil},
		"left, never runs": {map[string]string{"a/f_test.go": asks, "b/g_test.go": leaves}, []string{"b/g_test.go:2: a test is left to make check, and none of its package asks testing.Short()"}},
	})
}
