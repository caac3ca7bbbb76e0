package lockorder

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/lockorder/lockrecorder"
	"github.com/fencepost-gpu/fencepost/dev/proof/overlay"
)

// suites are the folders with tests that call the whole stack, and those of its backend, in the
// product's module or in that of the proofs, whichever has them.
var suites = []string{".", "cuda", "internal/e2e", "e2e"}

// apart are packages that the suites import and whose locks are not the product's.
var apart = []string{"cuda/sim", "cuda/driver/drivertest", "core/coretest"}

// fewest is a floor under the pairs that the suites show: with fewer, the build watches
// something else than it should.
const fewest = 80

func TestLocksAreTakenInTheWrittenOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the suites of the stack in a build of their own: make proof runs it")
	}
	root, err := overlay.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(root, "dev", "proof.md"))
	if err != nil {
		t.Fatal(err)
	}
	order, err := ReadOrder(string(document))
	if err != nil {
		t.Fatal(err)
	}
	files, classes, err := Overlay(root, product(t, root))
	if err != nil {
		t.Fatal(err)
	}
	if gone := order.Stale(classes); len(gone) > 0 {
		t.Errorf("dev/proof.md lists what is no lock: %q", gone)
	}
	dir := t.TempDir()
	replaced, err := files.Write(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	pairs := runSuites(t, root, replaced, filepath.Join(dir, "pairs"))
	for pair, way := range pairs {
		if wrong := order.Judge(classes[pair[0]], classes[pair[1]]); wrong != "" {
			t.Errorf("%s -> %s: %s\n%s", classes[pair[0]], classes[pair[1]], wrong, way)
		}
	}
	if len(pairs) < fewest {
		t.Errorf("%d pairs were seen, at least %d must be", len(pairs), fewest)
	}
	t.Logf("%d classes of locks, %d pairs", len(classes)-1, len(pairs))
}

// product are the folders that the default stack links, and telemetry's others.
func product(t *testing.T, root string) (folders []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "./decorators/...", "./telemetry/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		folder, ok := strings.CutPrefix(pkg+"/", overlay.Module+"/")
		if folder = strings.TrimSuffix(folder, "/"); ok && !slices.Contains(apart, folder) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// runSuites returns the pairs of classes that tests have shown, each with the calls
// between its locks. What the tests themselves find is left to where they run: some
// measure what this build changes, such as allocations and sizes.
func runSuites(t *testing.T, root, replaced, file string) map[[2]int]string {
	t.Helper()
	for module, patterns := range suitesByModule(t, root) {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-short", "-vet=off", "-timeout", "30m", "-overlay", replaced}, patterns...)...)
		cmd.Dir, cmd.Env = module, append(os.Environ(), lockrecorder.File+"="+file)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("%v\n%s", err, out)
		}
		for _, never := range []string{"[build failed]", "[setup failed]", "panic: "} {
			if bytes.Contains(out, []byte(never)) {
				t.Fatalf("a suite of %s did not run to its end: %s\n%s", module, never, out)
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pairs := map[[2]int]string{}
	for line := range strings.Lines(string(text)) {
		var pair [2]int
		if _, err := fmt.Sscanf(line, "%d %d", &pair[0], &pair[1]); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		pairs[pair] = strings.SplitN(strings.TrimSpace(line), " ", 3)[2]
	}
	return pairs
}

// suitesByModule are the patterns of the suites by the folder of their module.
func suitesByModule(t *testing.T, root string) map[string][]string {
	t.Helper()
	gomod, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, module := range []string{root, filepath.Dir(string(gomod))} {
		if found[module] != nil {
			continue // they are one
		}
		for _, suite := range suites {
			pattern := "./" + suite
			if strings.HasSuffix(suite, "e2e") {
				pattern += "/..."
			}
			if _, err := os.Stat(filepath.Join(module, suite)); err == nil && (suite != "." || module == root) {
				found[module] = append(found[module], pattern)
			}
		}
	}
	return found
}

func TestAnOrderIsReadAndJudged(t *testing.T) {
	order, err := ReadOrder("# A\n| `x` | no |\n\n## Locks\n\n| lock | guards |\n| --- | --- |\n| `a` | one |\n| `b` | two; several at once |\n| `c` | three, even before `a` |\n\n## More\n| `d` | no |\n")
	if err != nil || len(order) != 3 {
		t.Fatalf("%v, %v", order, err)
	}
	for pair, right := range map[[2]string]bool{
		{"a", "b"}: true, {"a", "c"}: true, {"b", "b"}: true, {"c", "leaf"}: true,
		{"c", "a"}: true, {"b", "a"}: false, {"c", "b"}: false, {"c", "c"}: false, {"leaf", "a"}: false, {"leaf", "other"}: false,
	} {
		if wrong := order.Judge(pair[0], pair[1]); (wrong == "") != right {
			t.Errorf("%q: %q", pair, wrong)
		}
	}
	if gone := order.Stale([]string{"a", "c", "leaf"}); !slices.Equal(gone, []string{"b"}) {
		t.Errorf("%q are gone", gone)
	}
	if _, err := ReadOrder("# A\n"); err == nil {
		t.Error("a document without the heading is read")
	}
}

// Every declaration of a lock gets a class, on the line where it was.
func TestEveryLockHasAClass(t *testing.T) {
	w := watch{folder: "cuda", classes: []string{""}, text: `package cuda

import (
	"bytes"
	"sync"
)

var all sync.Mutex

type table struct {
	mu, other sync.RWMutex
	sync.Mutex
	shards [4]struct{ mu sync.Mutex }
	done sync.WaitGroup
}
`}
	before := strings.Count(w.text, "\n")
	if err := w.file(); err != nil {
		t.Fatal(err)
	}
	want := []string{"", "cuda.all", "cuda.table.mu", "cuda.table.Mutex", "cuda.table.shards.mu"}
	if !slices.Equal(w.classes, want) {
		t.Errorf("the classes are %q, want %q", w.classes, want)
	}
	for _, line := range []string{
		"\t" + standInImport + "\n", "var all sync.Mutex[[1]byte]\n", "\tmu, other sync.RWMutex[[2]byte]\n",
		"\tsync.Mutex[[3]byte]\n", "struct{ mu sync.Mutex[[4]byte] }\n", "\tdone sync.WaitGroup\n",
	} {
		if !strings.Contains(w.text, line) {
			t.Errorf("%q is not in\n%s", line, w.text)
		}
	}
	if got := strings.Count(w.text, "\n"); got != before {
		t.Errorf("%d lines became %d", before, got)
	}
}
