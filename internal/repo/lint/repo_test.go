package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// loaded holds the files of this repository, which all tests only read: parsing
// them takes a second with the race detector.
var loaded = sync.OnceValues(func() (*repo, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	root, err := Root(dir)
	if err != nil {
		return nil, err
	}
	files, err := Load(root)
	return &repo{root, files}, err
})

type repo struct {
	root  string
	files []*File
}

// repository is this repository's folder, and its files.
func repository(t *testing.T) (root string, files []*File) {
	t.Helper()
	r, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return r.root, slices.Clone(r.files)
}

// rules are all rules that need no more than the text of files.
var rules = map[string]func([]*File) []Violation{
	"import direction":          Imports,
	"examples can be copied":    Examples,
	"applications link little":  Linked,
	"no anonymous fields":       Embedded,
	"no panics in libraries":    Panics,
	"exported names documented": Undocumented,
	"comments name their own":   Misnamed,
	"packages documented":       PackageComments,
	"file length":               Length,
	"files of a package":        Crowded,
	"words and machine paths":   Words,
	"code in documents parses":  Code,
	"names of the seeds exist":  Names,
	"long tests run somewhere":  Short,
	"retired words are gone":    Retired,
	"short rationales, once":    Rationales,
	"paths that exist":          Paths,
	"links lead somewhere":      Links,
}

func TestRepositoryKeepsItsRules(t *testing.T) {
	_, files := repository(t)
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, v := range rule(files) {
				t.Error(v)
			}
		})
	}
}

func TestProgramsInDocumentsCompile(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here")
	}
	root, files := repository(t)
	programs := slices.DeleteFunc(GoBlocks(files), func(b Block) bool { return !b.IsProgram() })
	for _, want := range []string{"docs/guide.md", "docs/start.md"} {
		if !slices.ContainsFunc(programs, func(b Block) bool { return b.File == want }) {
			t.Errorf("no program was found in %s", want)
		}
	}
	if err := Compile(t.Context(), root, t.TempDir(), programs...); err != nil {
		t.Error(err)
	}
}

// What a document shows as the output of a program is what it prints. The block
// behind the program is marked as such:
//
//	```output
func TestProgramsInDocumentsPrintWhatTheySay(t *testing.T) {
	if testing.Short() {
		t.Skip("the go command links each program: make check runs it")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here")
	}
	root, files := repository(t)
	shown := 0
	for _, b := range GoBlocks(files) {
		if b.Output == "" {
			continue
		}
		shown++
		got, err := b.Run(t.Context(), root, t.TempDir())
		if err != nil {
			t.Error(err)
		} else if got != b.Output {
			t.Errorf("the program at %s:%d prints\n%sand not\n%s", b.File, b.Line, got, b.Output)
		}
	}
	if shown < 2 {
		t.Errorf("%d programs with an output were found", shown)
	}
}

// TestLoadSeesTheRepository keeps the rules from passing because nothing was
// loaded.
func TestLoadSeesTheRepository(t *testing.T) {
	_, files := repository(t)
	for _, want := range []string{"core/ids.go", "Makefile", ".ci/run", "internal/repo/lint/repo.go", "traces/README.md"} {
		if !slices.ContainsFunc(files, func(f *File) bool { return f.Path == want }) {
			t.Errorf("%s was not loaded", want)
		}
	}
}

func TestLoadPassesOverWhatIsIgnored(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		".gitignore":     "/out/\n*.test\n",
		"out/bad.go":     "not Go",
		"testdata/x.go":  "not Go",
		"a/traces.gz":    "\x1f\x8b",
		"a/a.go":         "package a\n",
		".git/config":    "x",
		"a/out/kept.txt": "x",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Path)
	}
	if want := []string{".gitignore", "a/a.go", "a/out/kept.txt"}; !slices.Equal(got, want) {
		t.Errorf("loaded %q, want %q", got, want)
	}
}

func TestRootFailsOutsideAModule(t *testing.T) {
	if root, err := Root(t.TempDir()); err == nil {
		t.Errorf("found a module at %s", root)
	}
}
