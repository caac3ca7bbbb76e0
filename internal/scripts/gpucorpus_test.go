package scripts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeCorpus stands for the test binary, and fakeSanitizer for a tool that runs
// it and reports every bug but those that BLIND names, and every twin of SHY.
const (
	fakeCorpus = `#!/bin/sh
case "$FENCEPOST_CORPUS" in
list) printf '%s\n' 'overrun-word:bug direct' 'overrun-word:twin direct' 'leak:bug async' 'leak:twin async' 'hangs:bug async' 'absent:bug async' 'one-byte:clean async' ;;
"") echo '{"device":"d","driver":"v","case":"overrun-word","variant":"bug","tier":"tier 0","outcome":"missed"}' >>"$FENCEPOST_CORPUS_RESULTS"; exit "${TIERS:-0}" ;;
*)
	if [ -n "$FENCEPOST_CORPUS_TIER" ]; then
		echo '{"device":"NVIDIA H","driver":"CUDA 13.0","case":"one-byte"}'
	else
		echo "ran $FENCEPOST_CORPUS: whatever"
	fi
	;;
esac
`
	fakeSanitizer = `#!/bin/sh
case "$FENCEPOST_CORPUS" in hangs*) exec sleep 30 ;; absent*) exit 2 ;; esac
echo '========= COMPUTE-SANITIZER'
while [ "$1" != ./corpus.test ]; do shift; done
"$@"
case "$FENCEPOST_CORPUS" in
$BLIND) ;;
*:bug|$SHY) echo '========= Invalid __global__ write of size 8 bytes'; echo '========= ERROR SUMMARY: 1 error'; exit 9 ;;
esac
echo '========= ERROR SUMMARY: 0 errors'
`
)

// record runs the script over the fakes and returns its results, sorted.
func record(t *testing.T, variables ...string) (lines []string, out string, code int) {
	t.Helper()
	here := t.TempDir()
	write(t, here, map[string]string{"folder/src/internal/corpus/corpus.test": fakeCorpus, "tools/sanitizer": fakeSanitizer})
	variables = append([]string{"COMPUTE_SANITIZER=tools/sanitizer", "SECONDS_EACH=2", "BLIND=none", "SHY=none"}, variables...)
	out, code = bash(t, here, variables, filepath.Join(scripts(t), "gpu-corpus"), "folder", "results.jsonl")
	text, err := os.ReadFile(filepath.Join(here, "results.jsonl"))
	if err != nil {
		t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	lines = strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(lines)
	return lines, out, code
}

// of returns the outcome that the lines have of a program under the sanitizer.
func of(lines []string, program string) string {
	name, variant, _ := strings.Cut(program, ":")
	for _, line := range lines {
		if strings.Contains(line, `"case":"`+name+`","variant":"`+variant+`","tier":"compute-sanitizer"`) {
			_, rest, _ := strings.Cut(line, `"outcome":"`)
			outcome, _, _ := strings.Cut(rest, `"`)
			return outcome
		}
	}
	return "nothing"
}

func TestGPUCorpusRecordsWhatEachProgramCameTo(t *testing.T) {
	lines, out, code := record(t, "BLIND=leak:bug", "SHY=leak:twin")
	if code != 0 || !strings.Contains(out, "8 results") || !strings.Contains(strings.Join(lines, "\n"), `{"device":"NVIDIA H","driver":"CUDA 13.0","case":"overrun-word","variant":"bug","tier":"compute-sanitizer","outcome":"found","backend":"direct","text":"Invalid __global__ write of size 8 bytes"}`) {
		t.Errorf("exit code %d:\n%s\n%s", code, out, strings.Join(lines, "\n"))
	}
	for program, want := range map[string]string{"overrun-word:bug": "found", "overrun-word:twin": "clean", "leak:bug": "missed",
		"leak:twin": "false alarm", "hangs:bug": "broken", "absent:bug": "broken", "one-byte:clean": "clean"} {
		if got := of(lines, program); got != want {
			t.Errorf("%s is %s, want %s", program, got, want)
		}
	}
}

func TestGPUCorpusFailsWithTheTiers(t *testing.T) {
	if lines, out, code := record(t, "TIERS=1"); code != 1 || of(lines, "overrun-word:bug") != "found" {
		t.Errorf("exit code %d, want 1 and the sanitizer's results all the same:\n%s", code, out)
	}
}

func TestGPUCorpusTrustsNoSanitizerThatIsBlind(t *testing.T) {
	if _, out, code := record(t, "BLIND=*"); code != 2 || !strings.Contains(out, "does not work") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
