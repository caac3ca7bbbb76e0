package gputest

import (
	"strings"
	"testing"
)

// The tests that need a GPU are run on the simulated device wherever this
// package is tested, small, so that they cannot rot unseen.
func TestTheGPUTestsPassOnTheSimulatedDevice(t *testing.T) {
	if sanitized {
		t.Skip("left out under the sanitizer: it uses no GPU")
	}
	if testing.Short() {
		t.Skip("it takes half a minute: make proof runs it")
	}
	mutantsBeside(t, true) // one of the tests runs it
	out, err := self(t, []string{"-test.v", "-test.short", "-test.count=1", "-test.timeout=10m", "-test.skip=^" + t.Name() + "$"}, dryVariable+"=1")
	text := string(out)
	if err != nil || strings.Contains(text, "--- SKIP") || strings.Count(text, "\n--- PASS") < 30 {
		t.Errorf("the dry run ended with %v:\n%s", err, text)
	}
}
