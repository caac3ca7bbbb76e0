package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

const module = "github.com/fencepost-gpu/fencepost"

// root is the repository's folder.
func root(t *testing.T) string {
	t.Helper()
	return must.Get(filepath.Abs("../.."))(t)
}

func documents(t *testing.T) []Document {
	t.Helper()
	all := must.Get(Documents(root(t)))(t)
	if len(all) < 10 {
		t.Fatalf("only %d documents were found", len(all))
	}
	return all
}

// notLinked matches the packages of the root module that only tests and the command use: an
// application must not link them.
var notLinked = regexp.MustCompile(`^(core/coretest|cuda/driver/drivertest|fenceposttest|internal/(e2e|testkit|traceio|workload)|cmd|examples|traces)(/|$)`)

func TestAnApplicationLinksNoTestCode(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	list.Dir = root(t)
	out := must.Get(list.Output())(t)
	own := 0
	for _, pkg := range strings.Fields(string(out)) {
		if folder, ok := strings.CutPrefix(pkg, module+"/"); ok {
			own++
			if notLinked.MatchString(folder) {
				t.Errorf("the root package links %s: let the program that needs it import it", folder)
			}
		}
	}
	if own < 10 {
		t.Errorf("only %d packages of this module were seen", own)
	}
}

// An embedded upstream fails open: a method added to the contract would pass through a budget or
// a guard unseen.
func TestResourcesEmbedNothing(t *testing.T) {
	if found := anonymous(t, "type r struct { core.Resource; a int; in struct { *T } }\nfunc (r) PrepareUse() {}\n"); len(found) != 2 {
		t.Fatalf("of two planted anonymous fields %d were found", len(found))
	}
	for _, folder := range []string{"decorators", "telemetry"} {
		err := filepath.WalkDir(filepath.Join(root(t), folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			resource := strings.Contains(string(text), ") PrepareUse(")
			for _, field := range anonymous(t, string(text)) {
				if !resource && !strings.HasSuffix(field, "Resource") {
					continue
				}
				t.Errorf("%s: a struct has the anonymous field %s: name it and spell out what it does", path, field)
			}
			return nil
		})
		expect.Success(t, err)
	}
}

// anonymous lists the anonymous fields of the structs that the text declares.
func anonymous(t *testing.T, text string) (found []string) {
	t.Helper()
	if !strings.Contains(text, "\npackage ") && !strings.HasPrefix(text, "package ") {
		text = "package p\n" + text
	}
	file := must.Get(parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution))(t)
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				if len(field.Names) == 0 {
					found = append(found, text[field.Pos()-1:field.End()-1])
				}
			}
		}
		return true
	})
	return found
}

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	planted := []Document{{"docs/a.md", "# One\n[b](b.md) [c](#two) [d](#one) [e](https://example.com/x)\n"}}
	if dead := DeadLinks(t.TempDir(), planted); len(dead) != 2 {
		t.Fatalf("of two planted dead links these were found: %q", dead)
	}
	for _, d := range DeadLinks(root(t), documents(t)) {
		t.Error(d)
	}
}

func TestCodeInDocumentsCompiles(t *testing.T) {
	var programs []Block
	for _, d := range documents(t) {
		for _, b := range d.Blocks() {
			if err := b.Parse(); err != nil {
				t.Errorf("%s:%d: the Go code does not parse: %v", b.File, b.Line, err)
			} else if b.IsProgram() {
				programs = append(programs, b)
			}
		}
	}
	if len(programs) < 2 {
		t.Fatalf("only %d programs were found", len(programs))
	}
	expect.Success(t, Compile(t.Context(), root(t), t.TempDir(), programs...))
	wrong := Block{File: "docs/some.md", Line: 7, Code: "package main\n\nimport \"" + module + "/core\"\n\nfunc main() { println(core.NoSuchName) }\n"}
	if err := Compile(t.Context(), root(t), t.TempDir(), wrong); err == nil || !strings.Contains(err.Error(), "docs/some.md:11") {
		t.Errorf("a wrong program: %v", err)
	}
}

// The fenced block marked "output" behind a program is what the program prints.
func TestProgramsInDocumentsPrintWhatTheySay(t *testing.T) {
	shown := 0
	for _, d := range documents(t) {
		for _, b := range d.Blocks() {
			if b.Output == "" {
				continue
			}
			shown++
			if got, err := b.Run(t.Context(), root(t), t.TempDir()); err != nil {
				t.Error(err)
			} else if got != b.Output {
				t.Errorf("the program at %s:%d prints\n%sand not\n%s", b.File, b.Line, got, b.Output)
			}
		}
	}
	if shown < 2 {
		t.Errorf("only %d programs with an output were found", shown)
	}
}

// The README shows code that examples/hello runs.
func TestTheCodeOfTheREADMEIsTheExamples(t *testing.T) {
	_, shown, _ := strings.Cut(read(t, "README.md"), "```go\n")
	shown, _, _ = strings.Cut(shown, "```")
	indented := "\t" + strings.ReplaceAll(strings.TrimSpace(shown), "\n", "\n\t") + "\n"
	if !strings.Contains(read(t, "examples/hello/main.go"), indented) {
		t.Errorf("examples/hello/main.go does not have these lines:\n%s", indented)
	}
}

// A claim whose proof was renamed has none.
func TestTheTestsThatDocumentsNameExist(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "grep", "--untracked", "-hoE", `^func (Test|Fuzz|Benchmark|Example)\w*`, "--", "*_test.go")
	list.Dir = root(t)
	out := must.Get(list.Output())(t)
	exist := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		exist[strings.TrimPrefix(strings.TrimSpace(line), "func ")] = true
	}
	named := 0
	for _, d := range documents(t) {
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)\\w+)`").FindAllStringSubmatch(d.Text, -1) {
			named++
			if !exist[m[1]] {
				t.Errorf("%s names %s, which does not exist", d.Path, m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d tests are named", named)
	}
}

// A user who looks up a variable or a finding in the documents finds it.
func TestDocumentsNameEveryVariableAndFinding(t *testing.T) {
	var docs strings.Builder
	for _, d := range documents(t) {
		if strings.HasPrefix(d.Path, "docs/") {
			docs.WriteString(d.Text)
		}
	}
	for file, pattern := range map[string]string{
		"internal/environ/environ.go": `"(FENCEPOST_\w+)"`,
		"core/names/findings.go":      `Finding\w+ += "([\w-]+)"`,
	} {
		names := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1)
		if len(names) < 5 {
			t.Errorf("%s has only %d names", file, len(names))
		}
		row := func(m []string) bool { return !strings.Contains(docs.String(), "| `"+m[1]+"`") }
		for _, missing := range slices.DeleteFunc(names, func(m []string) bool { return !row(m) }) {
			t.Errorf("no table of the documents has a row for %s", missing[1])
		}
	}
}

// The page for deciders has the range of what the guard's page measured.
func TestTheCostsOfTheGuardAreThoseMeasured(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "docs/guard.md"), "## What it costs")
	columns, least, most := []string(nil), map[string]string{}, map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			if columns != nil && len(least) > 0 {
				break
			}
			continue
		}
		if columns == nil {
			columns = cells
			continue
		}
		for i, cell := range cells {
			cell = strings.TrimSpace(cell)
			figure, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				continue
			}
			mode := strings.Trim(columns[i], " `")
			if low, err := strconv.ParseFloat(least[mode], 64); err != nil || figure < low {
				least[mode] = cell
			}
			if high, err := strconv.ParseFloat(most[mode], 64); err != nil || figure > high {
				most[mode] = cell
			}
		}
	}
	for mode, row := range map[string]string{"sample": "| the default guard |", "hunt": "| a hunt ", "hunt:bisect": "| `hunt:bisect` "} {
		_, cost, _ := strings.Cut(read(t, "docs/is-this-for-me.md"), row)
		cost, _, _ = strings.Cut(cost, "\n")
		if want := least[mode] + " to " + most[mode]; least[mode] == "" || !strings.Contains(cost, want) {
			t.Errorf("%s costs %s times the time by docs/guard.md, and by docs/is-this-for-me.md:%s", mode, want, cost)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(root(t), name)))(t)
	return string(text)
}

// A reader looks up the names of Go that a document quotes.
func TestNamesInDocumentsExist(t *testing.T) {
	names := must.Get(LoadNames(t.Context(), root(t), filepath.Join(root(t), "dev")))(t)
	for _, w := range slices.Concat(names.Wrong(documents(t)...), names.WrongLinks(), names.Unlisted()) {
		t.Error(w)
	}
	for _, m := range regexp.MustCompile(`case "([^"]+)"`).FindAllStringSubmatch(read(t, "dev/seeds.md"), -1) {
		if !names.texts[m[1]] {
			t.Errorf("no suite has the case %q", m[1])
		}
	}

	right := "`core.Strict`, `core.Resource.Allocate`, `(*core.Block).ID`, `Config.Pool.TrimAfter`, `rt.Drift`, " +
		"`fencepost.Runtime.Do(ctx)`, `cuda/sim.Open`, `cuda.arenas.growing`, `context.Canceled`, `telemetry/names.go`, " +
		"`gpumem.alloc`, `LaunchRecorder.Mode`, `unknown.Close`\n\n" +
		"| before | after |\n| --- | --- |\n| `core.NoSuch` | `core.Strict` |\n\n```go\nrt := open()\n_, _ = rt.Drift()\n```\n"
	for _, w := range names.Wrong(Document{"docs/right.md", right}) {
		t.Errorf("of a right document: %s", w)
	}
	for i, quoted := range []string{
		"core.NoSuch", "core.Runtime.NoSuch", "cuda.arenas.noSuch", "context.NoSuch", "Config.NoSuch", "Config.Pool.NoSuch", "NoSuch.Close",
		"rt.NoSuch()", "job.NoSuch", "unknown.NoSuch", "cuda/nosuch.Open", "core/names.Open", "LaunchRecorder.noSuch",
	} {
		text := strings.Repeat("\n", i) + "It has `" + quoted + "`, see `core.Strict`.\n"
		if found := names.Wrong(Document{"docs/wrong.md", text}); len(found) != 1 || !strings.HasPrefix(found[0], fmt.Sprintf("docs/wrong.md:%d: ", i+1)) {
			t.Errorf("in %q: %q", quoted, found)
		}
	}
	block := "```go\nrt, err := fencepost.Opened(ctx)\nrt.NoSuch()\nsim.Open(core.Strict)\n```\n"
	if found := names.Wrong(Document{"docs/wrong.md", block}); len(found) != 2 || !strings.HasPrefix(found[0], "docs/wrong.md:2: ") {
		t.Errorf("in a block: %q", found)
	}
	lint := names.packages["lint"][0]
	names.comments = map[*types.Package]string{lint: "# What is where\n[LoadNames]", names.packages["cuda"][0]: "# What is where\n[PoolResource]"}
	if found := names.Unlisted(); len(found) < 3 || !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, "AsyncResource") }) {
		t.Errorf("of what a comment leaves out: %q", found)
	}
	for _, link := range []string{"NoSuch", "Names.NoSuch", "core.NoSuch", "core.Runtime.NoSuch"} {
		names.links = []docLink{{name: link, in: lint.Scope()}}
		if found := names.WrongLinks(); len(found) != 1 {
			t.Errorf("of the link [%s]: %q", link, found)
		}
	}
}
