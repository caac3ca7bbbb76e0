package gputest

import (
	"bufio"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// plantedSuspect is how the report names the launch that did it: with the
// stream, the tag of its block, and the span.
var plantedSuspect = regexp.MustCompile(`in flight: launch \d+ "planted" on stream \d+ of "planted\.victim", span [0-9a-f]{16} of trace [0-9a-f]{32}`)

// A kernel writes to an address of its own making in a process of its own,
// because the context is lost with it. The runtime there says so once and names
// the launch, refuses everything, and ends in order.
func TestAnIllegalAccessIsReportedOnceAndEndsInOrder(t *testing.T) {
	provokes(t, "an illegal access")
	gpu(t)
	const limit = 5 * time.Second // from the launch to the end of the process
	cmd, cancel := selfCommand(t, nil, plantVariable+"=illegal")
	defer cancel()
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	var report strings.Builder
	var launched time.Time
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == launchedLine {
			launched = time.Now()
		}
		report.WriteString(lines.Text() + "\n")
	}
	err = cmd.Wait()
	took := time.Since(launched)
	t.Logf("the process, which ended %v after the launch:\n%s%s", took.Round(time.Millisecond), report.String(), stderr.String())

	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitLost {
		t.Errorf("it ended with %v, want exit code %d", err, exitLost)
	}
	if launched.IsZero() || took > limit {
		t.Errorf("it took %v, want at most %v", took, limit)
	}
	if n := strings.Count(report.String(), findingPrefix); n != 1 || !strings.Contains(report.String(), findingPrefix+"sticky-error: ") {
		t.Errorf("%d findings were reported, want the sticky error once", n)
	}
	if !plantedSuspect.MatchString(report.String()) {
		t.Errorf("the planted launch is not named with stream, tag and span")
	}
}
