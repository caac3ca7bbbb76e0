package gputest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/environ"
)

// The variables that doc.go explains.
const (
	dryVariable       = "FENCEPOST_GPU_DRY_RUN"
	resourceVariable  = "FENCEPOST_GPU_RESOURCE"
	sanitizerVariable = "FENCEPOST_SANITIZER"
	plantVariable     = "FENCEPOST_PLANT"
	seedVariable      = "FENCEPOST_SEED"
)

var (
	dryRun    = os.Getenv(dryVariable) == "1"
	resource  = cmp.Or(os.Getenv(resourceVariable), string(fencepost.Pool))
	sanitized = os.Getenv(sanitizerVariable) != ""
	// errorsAllowed: the sanitizer is told not to report the driver's errors.
	errorsAllowed = os.Getenv(sanitizerVariable) == "errors"
)

var ctx = context.Background()

// TestMain clears the overrides of what the tests configure, and sets what the
// driver reads when it starts. A kernel that polls for the host's word deadlocks
// with the loading of another one, so all are loaded with their modules; and
// streams share as few of the hardware's queues as possible, because in one
// queue a stream waits for another without having been asked to.
func TestMain(m *testing.M) {
	for _, v := range environ.Variables() {
		_ = os.Unsetenv(v.Name)
	}
	for name, value := range map[string]string{"CUDA_MODULE_LOADING": "EAGER", "CUDA_DEVICE_MAX_CONNECTIONS": "32"} {
		if _, set := os.LookupEnv(name); !set {
			_ = os.Setenv(name, value)
		}
	}
	if sanitized {
		_ = os.Setenv("FENCEPOST_DEVICE_ORDER", "1")
	}
	if name := os.Getenv(plantVariable); name != "" {
		os.Exit(plant(name))
	}
	goleak.VerifyTestMain(tests{m})
}

// tests closes the shared device behind the last test.
type tests struct{ *testing.M }

func (m tests) Run() int {
	code := m.M.Run()
	if err := closeHardware(); err != nil {
		fmt.Fprintln(os.Stderr, "closing the device:", err)
		code = max(code, 1)
	}
	return code
}

// scaled is full, or small where time is short.
func scaled(full, small int) int {
	if testing.Short() || sanitized {
		return small
	}
	return full
}

// provokes leaves a test out under the sanitizer, which would report what the
// test does on purpose.
func provokes(t *testing.T, what string) {
	t.Helper()
	if sanitized {
		t.Skip("left out under the sanitizer, which reports it: this test provokes " + what)
	}
}

// provokesErrors is provokes for a test whose only sin is calls that fail.
func provokesErrors(t *testing.T) {
	t.Helper()
	if !errorsAllowed {
		provokes(t, "errors of the driver")
	}
}

// lacking leaves a test out for want of something that a machine with a GPU need not have. With
// FENCEPOST_REQUIRE=1 it fails the test.
func lacking(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("FENCEPOST_REQUIRE") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
