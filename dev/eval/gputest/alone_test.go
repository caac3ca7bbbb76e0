package gputest

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// aloneVariable names the test that a process was started for.
const aloneVariable = "FENCEPOST_GPU_ALONE"

// alone reports whether the test has a process, and so a context on the GPU,
// of its own. If not it runs the test in one, and the caller returns. It is for
// tests after which the context may be lost: what removes fences leaves nobody
// who says when memory may go.
func alone(t *testing.T) bool {
	t.Helper()
	gpu(t) // a skip is said here
	if os.Getenv(aloneVariable) == t.Name() {
		return true
	}
	var pattern []string
	for _, part := range strings.Split(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	out, err := self(t, []string{"-test.v", "-test.count=1", "-test.run=" + strings.Join(pattern, "/"), "-test.timeout=5m"}, aloneVariable+"="+t.Name())
	t.Logf("in a process of its own:\n%s", out)
	if err != nil {
		t.Errorf("it ended with: %v", err)
	} else if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("it did not run the test")
	}
	return false
}

// self runs this test binary with arguments and variables.
func self(t *testing.T, args []string, variables ...string) ([]byte, error) {
	t.Helper()
	cmd, cancel := selfCommand(t, args, variables...)
	defer cancel()
	return cmd.CombinedOutput()
}

func selfCommand(t *testing.T, args []string, variables ...string) (*exec.Cmd, context.CancelFunc) {
	t.Helper()
	binary, err := os.Executable()
	must(t, err)
	if testing.Short() {
		args = append(args, "-test.short")
	}
	limited, cancel := context.WithTimeout(ctx, 6*time.Minute)
	cmd := exec.CommandContext(limited, binary, args...)
	cmd.Env = append(os.Environ(), variables...)
	return cmd, cancel
}
