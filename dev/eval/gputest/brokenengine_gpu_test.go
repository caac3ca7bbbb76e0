package gputest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/mutation"
	"github.com/fencepost-gpu/fencepost/dev/proof/mutation/activemutant"
)

// brokenEngines are what is broken, one at a time, by the names of package
// mutation.
var brokenEngines = []string{
	"Stream.queueWaits: taken to hold: len(plan.deps) == 0",
	"Stream.wait: dropped: if err := s.port.StreamWait(s.handle, p.event); err != nil { …",
	"Point.Finish: a launch ends and its event is where it was the last time",
	"Plan.add: taken to hold: a.point.stream == s || !a.point.isPlaced()",
}

// The programs that read what they mean read wrong words if the fences are
// broken in one place: these binaries are built over a mutated package cuda.
func TestABrokenEngineReadsWrongWords(t *testing.T) {
	provokes(t, "races, by a broken engine")
	gpu(t)
	binary := mutants(t)
	for _, name := range brokenEngines {
		args := []string{"-test.v", "-test.count=1", "-test.timeout=3m", "-test.run=^TestFenceProgramsReadWhatTheyMean$"}
		if testing.Short() {
			args = append(args, "-test.short")
		}
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = append(os.Environ(), activemutant.Variable+"="+name)
		out, err := cmd.CombinedOutput()
		wrong := wrongWords(out)
		t.Logf("%s: %d words wrong", name, wrong)
		if err == nil || wrong == 0 {
			t.Errorf("a broken engine went unnoticed (%v):\n%s", err, out)
		}
	}
}

func wrongWords(out []byte) int {
	found := regexp.MustCompile(`(\d+) words are wrong`).FindSubmatch(out)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(found[1])) // it matched
	return n
}

// mutants is this package's test binary over the mutated package cuda.
func mutants(t *testing.T) string {
	t.Helper()
	binary := mutantsBeside(t, dryRun)
	if binary == "" {
		var err error
		binary, err = mutation.BuildTest(t.Context(), t.TempDir(), ".")
		must(t, err)
	}
	return binary
}

// mutantsBeside is the mutated binary that scripts/gpu-test --build puts beside this one, empty if
// Go can build it. A machine that has neither leaves the test out.
func mutantsBeside(t *testing.T, mayBuild bool) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	binary := filepath.Join(filepath.Dir(self), "mutants.test")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	if _, err := exec.LookPath("go"); err != nil || !mayBuild {
		lacking(t, "the mutated binary, which scripts/gpu-test --build makes, is not beside this one; only a dry run builds it, with Go")
	}
	return ""
}
