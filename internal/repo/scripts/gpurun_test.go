package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// passing is a test binary with one test, TestOne.
const passing = `#!/bin/sh
case TestOne in *${3#.}*) echo '--- PASS: TestOne (0.00s)' ;; *) echo 'testing: warning: no tests to run' ;; esac
`

// folder is what scripts/gpu-test --build makes, of two packages.
func folder(t *testing.T, first string) string {
	t.Helper()
	run, err := os.ReadFile(filepath.Join(scripts(t), "gpu-run"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"run": string(run), "packages": "m/first first first.test\nm/second second second.test\n", "bin/fencepost": "#!/bin/sh\n",
		"src/first/first.test": first, "src/second/second.test": passing,
	})
	return dir
}

func TestTheExitCodeOfGPURunIsTheTests(t *testing.T) {
	const (
		failing  = "#!/bin/sh\necho '--- FAIL: TestOne (0.00s)'\nexit 1\n"
		skipping = "#!/bin/sh\necho '    x_test.go:1: no CUDA driver here'\necho '--- SKIP: TestOne (0.00s)'\n"
		// dry fails unless it is on the GPU.
		dry    = "#!/bin/sh\n[ -z \"$FENCEPOST_GPU_DRY_RUN$FENCEPOST_SANITIZER$FENCEPOST_PLANT\" ] && echo '--- PASS: TestOne (0.00s)'\n"
		greedy = "#!/bin/sh\ncat\necho '--- PASS: TestOne (0.00s)'\n"
	)
	for name, c := range map[string]struct {
		first, variable, pattern string
		code                     int
		says                     string
	}{
		"all pass":             {passing, "", "", 0, "ok  \tm/second"},
		"one fails":            {failing, "", "", 1, "FAIL\tm/first"},
		"no driver":            {skipping, "", "", 1, "had to run"},
		"none is required":     {skipping, "FENCEPOST_REQUIRE_CUDA=0", "", 0, "ok  \tm/first"},
		"true is no number":    {passing, "FENCEPOST_REQUIRE_CUDA=true", "", 2, "FENCEPOST_REQUIRE_CUDA=true"},
		"yes is no number":     {skipping, "FENCEPOST_REQUIRE_CUDA=yes", "", 2, "whole number"},
		"010 is two numbers":   {passing, "FENCEPOST_REQUIRE_CUDA=010", "", 2, "whole number"},
		"a dry run":            {dry, "FENCEPOST_GPU_DRY_RUN=1", "", 0, "ok  \tm/first"},
		"a sanitizer's run":    {dry, "FENCEPOST_SANITIZER=1", "", 0, "ok  \tm/first"},
		"a planted bug":        {dry, "FENCEPOST_PLANT=oob", "", 0, "ok  \tm/first"},
		"a name of one":        {passing, "", "One", 0, "ok  \tm/second"},
		"a name of none":       {passing, "", "Tpyo", 1, "no test passed"},
		"a test that reads":    {greedy, "", "", 0, "ok  \tm/second"},
		"bash before 5.0":      {passing, "BASH_ENV=old", "", 0, "ok  \tm/second"},
		"an option of no name": {passing, "", "--requier", 2, "usage"},
	} {
		dir := folder(t, c.first)
		write(t, dir, map[string]string{"old": "unset EPOCHREALTIME\n"})
		var args []string
		if c.pattern != "" {
			args = append(args, c.pattern)
		}
		out, code := bash(t, dir, []string{"FENCEPOST_REQUIRE_CUDA=", c.variable}, "run", args...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", name, code, c.code, c.says, out)
		}
	}
}
