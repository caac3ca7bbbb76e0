package fencepost_test

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func compare(t *testing.T, what string, code, document []string) {
	t.Helper()
	if len(code) == 0 {
		t.Fatalf("no %s in the code: the pattern is wrong", what)
	}
	for _, name := range code {
		if !slices.Contains(document, name) {
			t.Errorf("%s: the document lacks %s", what, name)
		}
	}
	for _, name := range document {
		if !slices.Contains(code, name) {
			t.Errorf("%s: the document has %s, which does not exist", what, name)
		}
	}
}

func TestThePageNamesEveryMetric(t *testing.T) {
	var exported []string
	for _, m := range metrics.Catalogue() {
		exported = append(exported, m.Name)
	}
	compare(t, "metrics", exported, e2e.Matches(e2e.Read(t, "docs/metrics.md"), "(?m)^\\| `(gpumem_\\w+)` \\|"))
}

func TestThePageNamesEverySpan(t *testing.T) {
	compare(t, "spans", e2e.Matches(e2e.Read(t, "telemetry/names.go"), `SpanName = "([\w.]+)"`), e2e.Matches(e2e.Read(t, "docs/traces.md"), "(?m)^### `(gpumem\\.\\w+)`"))
}

func TestThePageNamesEveryVariable(t *testing.T) {
	compare(t, "variables", e2e.Matches(e2e.Read(t, "internal/environ/environ.go"), `"(FENCEPOST_\w+)"`), e2e.Matches(e2e.Read(t, "docs/configuration.md"), "(?m)^\\| `(FENCEPOST_\\w+)` \\|"))
}

func TestThePageNamesEveryKindOfFinding(t *testing.T) {
	compare(t, "findings", e2e.Matches(e2e.Read(t, "core/finding.go"), `FindingKind += "([\w-]+)"`), e2e.Matches(e2e.Read(t, "docs/findings.md"), "(?m)^\\| `([\\w-]+)` \\|"))
}

// The README is what somebody reads who has five minutes.
func TestTheREADMEIsShort(t *testing.T) {
	if lines := strings.Count(e2e.Read(t, "README.md"), "\n"); lines > 130 {
		t.Errorf("%d lines: what is beyond 130 belongs into docs/", lines)
	}
}

// The README shows code that a test builds and runs as a module of its own.
func TestTheCodeOfTheREADMEIsTheExamples(t *testing.T) {
	_, shown, _ := strings.Cut(e2e.Read(t, "README.md"), "```go\n")
	shown, _, _ = strings.Cut(shown, "```")
	indented := "\t" + strings.ReplaceAll(strings.TrimSpace(shown), "\n", "\n\t") + "\n"
	if !strings.Contains(e2e.Read(t, "examples/hello/main.go"), indented) {
		t.Errorf("examples/hello/main.go does not have these lines:\n%s", indented)
	}
}

// The index of the pages is whole.
func TestTheIndexNamesEveryPage(t *testing.T) {
	pages, err := fs.Glob(os.DirFS("docs"), "*.md")
	if err != nil {
		t.Fatal(err)
	}
	index := e2e.Read(t, "docs/README.md")
	compare(t, "pages", slices.DeleteFunc(pages, func(p string) bool { return p == "README.md" }), e2e.Matches(index, `\]\(([\w-]+\.md)\)`))
}

// A claim whose proof was renamed has none.
func TestTheTestsThatDocumentsNameExist(t *testing.T) {
	var code strings.Builder
	documents := []string{"README.md"}
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(path, "_test.go"):
			code.WriteString(e2e.Read(t, path))
		case d.Name() == "RATIONALE.md" || strings.HasPrefix(path, "docs/") && strings.HasSuffix(path, ".md"):
			documents = append(documents, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	tests := e2e.Matches(code.String(), `(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	for _, document := range documents {
		for _, name := range e2e.Matches(e2e.Read(t, document), "`((?:Test|Fuzz|Benchmark|Example)\\w*)`") {
			if !slices.Contains(tests, name) {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
	}
}

func TestThePageOfSystemsSaysWhatIsBuilt(t *testing.T) {
	page := e2e.Read(t, "docs/support.md")
	_, loop, _ := strings.Cut(e2e.Read(t, "scripts/test"), "for target in ")
	targets, _, _ := strings.Cut(loop, ";")
	compare(t, "systems that are built", e2e.Matches(targets, `(\w+/\w+)`), e2e.Matches(page, "(?m)^\\| `(\\w+/\\w+)` \\| built"))
	if version := e2e.Matches(e2e.Read(t, "go.mod"), `(?m)^go (\d+\.\d+)`); !strings.Contains(page, "Go "+version[0]+" or later") {
		t.Errorf("the page does not name Go %s", version[0])
	}
}

// The workflow runs commands of the repository, with no more rights than
// reading, and actions of a major version.
func TestTheWorkflowRunsWhatDevelopersRun(t *testing.T) {
	workflow := e2e.Read(t, ".github/workflows/ci.yml")
	for _, line := range []string{"permissions:\n  contents: read\n", "run: .ci/run\n", "run: scripts/test --systems\n", "go-version-file: go.mod\n"} {
		if !strings.Contains(workflow, line) {
			t.Errorf("the workflow has no %q", line)
		}
	}
	if strings.Count(workflow, "permissions:") != 1 || strings.Contains(workflow, "secrets.") {
		t.Error("the workflow asks for more than it needs")
	}
	for _, action := range e2e.Matches(workflow, `uses: (\S+)`) {
		if !regexp.MustCompile(`^actions/[\w-]+@v\d+$`).MatchString(action) {
			t.Errorf("%s: name an action of GitHub's by its major version", action)
		}
	}
	script := e2e.Read(t, "scripts/test")
	for _, option := range []string{"--systems", "--check"} {
		if !strings.Contains(script, "\n"+option+")\n") {
			t.Errorf("scripts/test has no %s", option)
		}
	}
	if targets := e2e.Matches(e2e.Read(t, ".ci/run"), `(?m)^(?:exec )?make --no-print-directory (\w+)`); !slices.Equal(targets, []string{"check", "test"}) {
		t.Errorf(".ci/run makes %q: the test runner's lines come last", targets)
	}
}
