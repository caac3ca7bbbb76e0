package corpus

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/internal/environ"
)

// The variables that say what a process of this binary does instead of tests.
const (
	// caseVariable is "list", for the names of all programs, or "NAME:VARIANT",
	// for one program; tierVariable is the tier that it runs at and prints its
	// result of. Without one it runs with the guard off, over the backend that a
	// sanitizer sees most of it through.
	caseVariable = "FENCEPOST_CORPUS"
	tierVariable = "FENCEPOST_CORPUS_TIER"
	// resultsVariable is the file that the tests on a GPU add results to.
	resultsVariable = "FENCEPOST_CORPUS_RESULTS"
	dryVariable     = "FENCEPOST_GPU_DRY_RUN"
	toolVariable    = "FENCEPOST_SANITIZER"
)

// TestMain sets what the CUDA driver reads when it starts; dev/eval/gputest
// says why.
func TestMain(m *testing.M) {
	for _, v := range environ.Variables() {
		_ = os.Unsetenv(v.Name)
	}
	for name, value := range map[string]string{"CUDA_MODULE_LOADING": "EAGER", "CUDA_DEVICE_MAX_CONNECTIONS": "32"} {
		if _, set := os.LookupEnv(name); !set {
			_ = os.Setenv(name, value)
		}
	}
	if os.Getenv(toolVariable) != "" {
		_ = os.Setenv("FENCEPOST_DEVICE_ORDER", "1")
	}
	if what := os.Getenv(caseVariable); what != "" {
		os.Exit(alone(what))
	}
	goleak.VerifyTestMain(m)
}

// machine is the GPU, which the runtime is to open or not, or simulated devices in a dry run.
func machine(toOpen bool) (*Machine, error) {
	switch {
	case os.Getenv(dryVariable) == "1":
		return OnSim(), nil
	case toOpen:
		return ToOpen(), nil
	}
	return OnGPU()
}

// alone does what caseVariable says and returns the exit code: 0 if the program
// ran, 1 if it broke off, which is what a sanitizer makes of a guilty launch,
// and 2 if nothing could be run.
func alone(what string) int {
	if what == "list" {
		for _, c := range All() {
			for _, variant := range c.Variants() {
				fmt.Printf("%s:%s %s\n", c.Name, variant, c.ToolBackend())
			}
		}
		return 0
	}
	name, variant, _ := strings.Cut(what, ":")
	c, known := Find(name)
	if !known {
		fmt.Fprintf(os.Stderr, "%s=%s: there is no such case\n", caseVariable, what)
		return 2
	}
	t, atTier := TierNamed(os.Getenv(tierVariable))
	m, err := machine(t.OwnProcess)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer func() { _ = m.Close() }() // it fails on a lost device
	if atTier {
		return atTheTier(m, c, variant, t)
	}
	return perform(m, c, variant)
}

// atTheTier prints the result of one program.
func atTheTier(m *Machine, c Case, variant string, t Tier) int {
	r, err := m.Result(ctx, c, variant, t)
	line, lineErr := r.Line()
	if err != nil || lineErr != nil {
		fmt.Fprintln(os.Stderr, t.Name, err, lineErr)
		return 2
	}
	fmt.Print(line)
	return 0
}

// perform runs one program.
func perform(m *Machine, c Case, variant string) int {
	v := m.RunAlone(ctx, c, variant == WithBug)
	fmt.Printf("ran %s:%s: %s %s\n", c.Name, variant, v.Outcome, v.Text)
	if v.Outcome == Broken || v.Outcome == FalseAlarm {
		return 1
	}
	return 0
}
