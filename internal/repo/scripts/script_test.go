package scripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// scripts is the folder of the scripts under test.
func scripts(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../scripts")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// write makes files that can be run, by their path below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// bash runs a script in a folder, with these variables as well, and returns
// what it printed and its exit code.
func bash(t *testing.T, dir string, variables []string, script string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{script}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), variables...)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no bash here")
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
