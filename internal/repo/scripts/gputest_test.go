package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeGo builds a test binary that prints the variables that it is given, and
// fakeSSH runs commands on this machine, but for those that FAIL names, with
// no variables of the caller's, as a login has none.
const (
	fakeGo = `#!/bin/sh
[ "$1" != list ] || echo "module/$2"
while [ $# -gt 1 ]; do
	if [ "$1" = -o ]; then
		printf '%s\n' '#!/bin/sh' env 'echo "--- PASS: TestOne (0.00s)"' >"$2"
		chmod +x "$2"
	fi
	shift
done
`
	fakeSSH = `#!/bin/sh
shift
case "$*" in *$FAIL*) echo "ssh: refused" >&2; exit 255 ;; esac
exec env -i PATH="$PATH" TMPDIR="$TMPDIR" sh -c "$*"
`
)

// tools puts them in front of everything else, and returns what to set and
// the folder that temporary files go to.
func tools(t *testing.T, variables ...string) (env []string, temporary string) {
	t.Helper()
	bin, temporary := t.TempDir(), t.TempDir()
	write(t, bin, map[string]string{"go": fakeGo, "ssh": fakeSSH})
	return append(variables, "PACKAGES=./cuda", "TMPDIR="+temporary, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH")), temporary
}

func TestGPUTestForwardsWhatTheTestsAreToldByVariables(t *testing.T) {
	want := []string{"FENCEPOST_REQUIRE_CUDA=2", "FENCEPOST_SEED=7", "CUDA_VISIBLE_DEVICES=GPU-1, 'two'", "FENCEPOST_LIBCUDA=/a folder/libcuda.so.1"}
	env, _ := tools(t, append(want, "FAIL=no such command")...)
	out, code := bash(t, t.TempDir(), env, filepath.Join(scripts(t), "gpu-test"), "--ssh", "host")
	for _, line := range want {
		if code != 0 || !strings.Contains(out, "\n"+line+"\n") {
			t.Errorf("exit code %d, and %s did not arrive:\n%s", code, line, out)
		}
	}
}

func TestGPUTestLeavesNothingOnTheHost(t *testing.T) {
	for fail, want := range map[string]int{"no such command": 0, "tar": 255, "/run": 255} {
		env, temporary := tools(t, "FAIL="+fail)
		out, code := bash(t, t.TempDir(), env, filepath.Join(scripts(t), "gpu-test"), "--ssh", "host")
		left, err := os.ReadDir(temporary)
		if code != want || err != nil || len(left) > 0 {
			t.Errorf("where %s fails: exit code %d, want %d; %v left, %v:\n%s", fail, code, want, left, err, out)
		}
	}
}

func TestGPUTestBuildsWhereTheUserStands(t *testing.T) {
	env, _ := tools(t)
	here := t.TempDir()
	out, code := bash(t, here, env, filepath.Join(scripts(t), "gpu-test"), "--build", "dist/relative")
	if _, err := os.Stat(filepath.Join(here, "dist/relative/run")); code != 0 || err != nil {
		t.Errorf("exit code %d, %v:\n%s", code, err, out)
	}
}

func TestGPUSanitizeFindsAToolWhereTheUserStands(t *testing.T) {
	here := t.TempDir()
	write(t, here, map[string]string{
		"folder/src/internal/eval/gputest/gputest.test": "#!/bin/sh\n",
		"tools/sanitizer": `#!/bin/sh
[ -z "$FENCEPOST_PLANT" ] || { echo planted; echo 'ERROR SUMMARY: 1 error'; exit 9; }
echo '--- PASS: TestOne (0.00s)'
echo 'ERROR SUMMARY: 0 errors'
`})
	out, code := bash(t, here, []string{"COMPUTE_SANITIZER=tools/sanitizer"}, filepath.Join(scripts(t), "gpu-sanitize"), "folder")
	if code != 0 || strings.Count(out, "ok: ") != 4 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
