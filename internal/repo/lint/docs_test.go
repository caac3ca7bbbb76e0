package lint

import (
	"slices"
	"strings"
	"testing"
)

func TestExportedNamesAreDocumented(t *testing.T) {
	check(t, Undocumented, map[string]example{
		"function":  {one("a/f.go", "package p\n\nfunc F() {}\n"), []string{"a/f.go:3: F has no doc comment"}},
		"method":    {one("a/f.go", "package p\n\nfunc (t *T[X]) F() {}\n"), []string{"a/f.go:3: T.F has no doc comment"}},
		"type":      {one("a/f.go", "package p\n\ntype T int\n"), []string{"a/f.go:3: T has no doc comment"}},
		"variable":  {one("a/f.go", "package p\n\nvar a, V int\n"), []string{"a/f.go:3: a has no doc comment"}},
		"constant":  {one("a/f.go", "package p\n\nconst (\n\tC = 1\n)\n"), []string{"a/f.go:4: C has no doc comment"}},
		"interface": {one("a/f.go", "package p\n\n// I is.\ntype I interface {\n\tM()\n}\n"), []string{"a/f.go:5: I.M has no doc comment"}},
		"good": {one("a/f.go", strings.Join([]string{
			"package p", "", "// F does.", "func F() {}", "", "// The constants.", "const (", "\tC = 1", "\tD = 2", ")", "",
			"var (", "\tV = 1 // V is.", ")", "", "type t int", "func (t) String() string { return \"\" }", "func f() {}", "",
			"// I is.", "type I interface {", "\tfmt.Stringer", "\t// M does.", "\tM()", "\tn()", "}", "",
		}, "\n")), nil},
		"test": {one("a/f_test.go", "package p\n\nfunc F() {}\n"), nil},
	})
}

func TestPackagesAreDocumented(t *testing.T) {
	check(t, PackageComments, map[string]example{
		"none": {one("a/f.go", "// Not about the package.\n\npackage p\n"), []string{"a/f.go:3: package p has no package comment"}},
		"one of two": {map[string]string{
			"a/f.go": "package p\n", "a/doc.go": "// Package p is.\npackage p\n",
		}, nil},
		"directive alone": {one("a/f.go", "//go:build linux\n\npackage p\n"), []string{"a/f.go:3: package p has no package comment"}},
		"tests only":      {one("a/f_test.go", "package p\n"), nil},
	})
}

func TestCodeInDocumentsParses(t *testing.T) {
	fence := func(code string) map[string]string {
		return one("README.md", "# Title\n\n```go\n"+code+"```\n\n```sh\n{{{\n```\n")
	}
	check(t, Code, map[string]example{
		"program":      {fence("package main\n\nfunc main() {}\n"), nil},
		"declarations": {fence("import \"fmt\"\n\nfunc f() { fmt.Println() }\n"), nil},
		"statements":   {fence("x := 1\n_ = x\n"), nil},
		"broken program": {fence("package main\n\nfunc main() {\n"), []string{
			"README.md:4: the Go code does not parse: 3:15: expected '}', found 'EOF'",
		}},
		"broken statements": {fence("x := := 1\n"), []string{
			"README.md:4: the Go code does not parse: 3:6: expected operand, found ':=' (and 1 more errors)",
		}},
	})
}

func TestBlocksHaveTheOutputBehindThem(t *testing.T) {
	text := "```sh\nx\n```\n```go\na\n```\nIt prints\n\n```output\n1\n2\n```\n\n```go\nb\n```\n```\n3\n```\n"
	got := GoBlocks([]*File{{Path: "docs/a.md", Text: text}})
	want := []Block{{File: "docs/a.md", Line: 5, Code: "a\n", Output: "1\n2\n"}, {File: "docs/a.md", Line: 15, Code: "b\n"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRunReturnsWhatAProgramPrints(t *testing.T) {
	root, _ := repository(t)
	b := Block{File: "docs/some.md", Line: 7, Code: "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() { fmt.Println(os.Getenv(\"FENCEPOST_DEVICE\")) }\n"}
	if got, err := b.Run(t.Context(), root, t.TempDir()); err != nil || got != "sim\n" {
		t.Errorf("%q, %v", got, err)
	}
	b.Code = "package main\n\nfunc main() { panic(\"no\") }\n"
	if _, err := b.Run(t.Context(), root, t.TempDir()); err == nil || !strings.Contains(err.Error(), "docs/some.md:7") || !strings.Contains(err.Error(), "panic: no") {
		t.Errorf("%v", err)
	}
}

func TestCompileSeesWhatParsingDoesNot(t *testing.T) {
	root, _ := repository(t)
	program := func(body string) Block {
		return Block{File: "docs/some.md", Line: 7, Code: "package main\n\nimport \"" + Module + "/core\"\n\nfunc main() { " + body + " }\n"}
	}
	good, bad := program("println(core.Untagged)"), program("println(core.NoSuchName)")
	embeds := Block{File: "docs/other.md", Line: 3, Code: "package other\n\nimport _ \"embed\"\n\n//go:embed some.ptx\nvar code []byte\n"}
	if err := Compile(t.Context(), root, t.TempDir(), good, embeds); err != nil {
		t.Errorf("good programs: %v", err)
	}
	for name, programs := range map[string][]Block{"alone": {bad}, "among others": {good, bad, embeds}} {
		err := Compile(t.Context(), root, t.TempDir(), programs...)
		if err == nil || !strings.Contains(err.Error(), "docs/some.md:11") || !strings.Contains(err.Error(), "NoSuchName") || strings.Contains(err.Error(), "other.md") {
			t.Errorf("a bad program %s: %v", name, err)
		}
	}
}
