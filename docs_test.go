package fencepost_test

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// matches are the distinct matches of the first group of pattern, sorted.
func matches(text, pattern string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

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
	compare(t, "metrics", matches(read(t, "telemetry/names.go"), `MetricName += "(\w+)"`), matches(read(t, "docs/metrics.md"), "(?m)^\\| `(gpumem_\\w+)` \\|"))
}

func TestThePageNamesEverySpan(t *testing.T) {
	compare(t, "spans", matches(read(t, "telemetry/names.go"), `SpanName = "([\w.]+)"`), matches(read(t, "docs/traces.md"), "(?m)^### `(gpumem\\.\\w+)`"))
}

func TestTheREADMENamesEveryVariable(t *testing.T) {
	compare(t, "variables", matches(read(t, "env.go"), `"(FENCEPOST_\w+)"`), matches(read(t, "README.md"), "(?m)^\\| `(FENCEPOST_\\w+)` \\|"))
}

func TestTheREADMENamesEveryKindOfFinding(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "README.md"), "\n## Findings\n")
	section, _, _ = strings.Cut(section, "\n## ")
	compare(t, "findings", matches(read(t, "core/finding.go"), `FindingKind += "([\w-]+)"`), matches(section, "(?m)^\\| `([\\w-]+)` \\|"))
}

// A claim whose proof was renamed has none.
func TestTheTestsThatDocumentsNameExist(t *testing.T) {
	var code strings.Builder
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			code.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tests := matches(code.String(), `(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	for _, document := range []string{"README.md", "RATIONALE.md", "docs/architecture.md", "docs/gpu.md", "docs/traces.md"} {
		for _, name := range matches(read(t, document), "`((?:Test|Fuzz|Benchmark|Example)\\w*)`") {
			if !slices.Contains(tests, name) {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
	}
}
