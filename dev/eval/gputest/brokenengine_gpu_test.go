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
	"Plan.add: taken to hold: a.point.stream == s",
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

// mutants is this package's test binary over the mutated package cuda. On a
// machine with a GPU it lies beside this one; a dry run elsewhere builds it.
func mutants(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	binary := filepath.Join(filepath.Dir(self), "mutants.test")
	if _, err := os.Stat(binary); err == nil {
		return binary
	} else if !dryRun {
		t.Skipf("the mutated binary, which scripts/gpu-test --build makes, is not beside this one: %v", err)
	}
	binary, err = mutation.BuildTest(t.Context(), t.TempDir(), ".")
	must(t, err)
	return binary
}
