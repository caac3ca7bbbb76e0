package scripts

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fakeCorpus stands for the test binary, and fakeSanitizer for a tool that runs
// it and reports every bug but those that BLIND names, and every twin of SHY.
// With CUT it ends the whole, which is process SCRIPT, at one program.
const (
	fakeCorpus = `#!/bin/sh
case "$FENCEPOST_CORPUS" in
list) printf '%s\n' 'one-byte:clean async' 'overrun-word:bug direct' 'overrun-word:twin direct' 'leak:bug async' 'leak:twin async' 'hangs:bug async' 'absent:bug async' 'fill:bug direct' ;;
"") echo '{"device":"d","driver":"v","case":"overrun-word","variant":"bug","tier":"tier 0","outcome":"missed"}' >>"$FENCEPOST_CORPUS_RESULTS"; exit "${TIERS:-0}" ;;
*)
	if [ -n "$FENCEPOST_CORPUS_TIER" ]; then
		echo '{"device":"NVIDIA H","driver":"CUDA 13.0","case":"one-byte"}'
	else
		case "$FENCEPOST_CORPUS" in fill:*) verdict=refused ;; *) verdict=whatever ;; esac
		echo "ran $FENCEPOST_CORPUS: $verdict"
		seq 1000
	fi
	;;
esac
`
	fakeSanitizer = `#!/bin/sh
case "$CUT$FENCEPOST_CORPUS" in 1hangs*) kill -9 "$SCRIPT"; exit ;; hangs*) exec sleep 30 ;; absent*) exit 2 ;; esac
echo '========= COMPUTE-SANITIZER'
while [ "$1" != ./corpus.test ]; do shift; done
"$@"
case "$FENCEPOST_CORPUS" in
$BLIND|fill:bug) ;;
*:bug|$SHY) echo '========= Invalid __global__ write of size 8 bytes'; echo '========= ERROR SUMMARY: 1 error'; exit 9 ;;
esac
echo '========= ERROR SUMMARY: 0 errors'
`
)

// record runs the script over the fakes and returns its results in their order,
// and how long the logs are that it kept.
func record(t *testing.T, variables ...string) (lines []string, logs map[string]int, out string, code int) {
	t.Helper()
	here := t.TempDir()
	write(t, here, map[string]string{"folder/src/internal/eval/corpus/corpus.test": fakeCorpus, "tools/sanitizer": fakeSanitizer,
		"named": "export SCRIPT=$$\nexec bash \"$@\"\n"})
	variables = append([]string{"COMPUTE_SANITIZER=tools/sanitizer", "SECONDS_EACH=2", "BLIND=none", "SHY=none"}, variables...)
	out, code = bash(t, here, variables, "named", filepath.Join(scripts(t), "gpu-corpus"), "folder", "results.jsonl")
	text, err := os.ReadFile(filepath.Join(here, "results.jsonl"))
	if err != nil {
		t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	logs = map[string]int{}
	kept, err := filepath.Glob(filepath.Join(here, "folder/corpus.logs/*"))
	for _, name := range kept {
		log, readErr := os.ReadFile(name)
		err = errors.Join(err, readErr)
		logs[filepath.Base(name)] = strings.Count(string(log), "\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), logs, out, code
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

// seconds is the one part of a result that differs from run to run.
var seconds = regexp.MustCompile(`"seconds":[0-9]+\.[0-9]{3},`)

func TestGPUCorpusRecordsWhatEachProgramCameTo(t *testing.T) {
	lines, _, out, code := record(t, "BLIND=leak:bug", "SHY=leak:twin")
	if code != 0 || !strings.Contains(out, "9 results") || !strings.Contains(out, "refused: 1\n") || !strings.Contains(out, "not run: 0\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if want := `{"device":"NVIDIA H","driver":"CUDA 13.0","case":"overrun-word","variant":"bug","tier":"compute-sanitizer","outcome":"found","backend":"direct","text":"Invalid __global__ write of size 8 bytes"}`; !slices.ContainsFunc(lines, func(line string) bool {
		return seconds.MatchString(line) && seconds.ReplaceAllString(line, "") == want
	}) {
		t.Errorf("no line is %s with seconds:\n%s", want, strings.Join(lines, "\n"))
	}
	for _, line := range lines[1:] {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
	for program, want := range map[string]string{"overrun-word:bug": "found", "overrun-word:twin": "clean", "leak:bug": "missed", "fill:bug": "refused",
		"leak:twin": "false alarm", "hangs:bug": "broken", "absent:bug": "broken", "one-byte:clean": "clean"} {
		if got := of(lines, program); got != want {
			t.Errorf("%s is %s, want %s", program, got, want)
		}
	}
}

func TestGPUCorpusBeginsWithTheBugsAndEndsWithTheCleanPrograms(t *testing.T) {
	lines, _, out, _ := record(t, "PARALLEL=1")
	var order []string
	for _, line := range lines {
		if strings.Contains(line, `"tier":"compute-sanitizer"`) {
			_, rest, _ := strings.Cut(line, `"variant":"`)
			variant, _, _ := strings.Cut(rest, `"`)
			order = append(order, variant)
		}
	}
	if !slices.Equal(order, slices.Concat(slices.Repeat([]string{"bug"}, 5), slices.Repeat([]string{"twin"}, 2), []string{"clean"})) {
		t.Errorf("%v:\n%s", order, out)
	}
}

func TestGPUCorpusKeepsTheLogsThatAreNeededAndNoMore(t *testing.T) {
	_, logs, out, _ := record(t, "SHY=leak:twin")
	for _, name := range []string{"overrun-word.bug.log", "leak.bug.log", "leak.twin.log", "hangs.bug.log", "absent.bug.log"} {
		if lines, kept := logs[name]; !kept || lines > 61 {
			t.Errorf("%s was kept: %v, with %d lines", name, kept, lines)
		}
	}
	if len(logs) != 5 {
		t.Errorf("kept were %v:\n%s", logs, out)
	}
}

func TestGPUCorpusRecordsWhatItHadNoTimeFor(t *testing.T) {
	lines, _, out, code := record(t, "PARALLEL=1", "DEADLINE=1")
	if code != 0 || of(lines, "overrun-word:bug") != "found" || of(lines, "hangs:bug") != "broken" {
		t.Errorf("exit code %d:\n%s\n%s", code, out, strings.Join(lines, "\n"))
	}
	for _, program := range []string{"absent:bug", "fill:bug", "overrun-word:twin", "leak:twin", "one-byte:clean"} {
		if got := of(lines, program); got != "not run" {
			t.Errorf("%s is %s", program, got)
		}
	}
	if !strings.Contains(out, "not run: 5\n") {
		t.Errorf("the summary does not count them:\n%s", out)
	}
}

// What cuts the whole off leaves what is there by then.
func TestGPUCorpusLosesNoResultWhenItIsCutOff(t *testing.T) {
	lines, _, out, code := record(t, "PARALLEL=1", "SECONDS_EACH=20", "CUT=1")
	if code == 0 || of(lines, "overrun-word:bug") != "found" || of(lines, "leak:bug") != "found" || of(lines, "fill:bug") != "nothing" {
		t.Errorf("exit code %d:\n%s\n%s", code, out, strings.Join(lines, "\n"))
	}
}

func TestGPUCorpusFailsWithTheTiers(t *testing.T) {
	if lines, _, out, code := record(t, "TIERS=1"); code != 1 || of(lines, "overrun-word:bug") != "found" {
		t.Errorf("exit code %d, want 1 and the sanitizer's results all the same:\n%s", code, out)
	}
}

func TestGPUCorpusTrustsNoSanitizerThatIsBlind(t *testing.T) {
	lines, logs, out, code := record(t, "BLIND=*")
	if code != 2 || !strings.Contains(out, "does not work") || logs["overrun-word.bug.log"] == 0 {
		t.Errorf("exit code %d, logs %v:\n%s", code, logs, out)
	}
	if got := of(lines, "leak:bug"); got != "nothing" {
		t.Errorf("it went on all the same: %s", got)
	}
}
