package fencepost_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// TestMain clears the environment's overrides, which would change what the
// tests build, hides the GPU that this machine may have, so that they build
// the same everywhere, and demands that every runtime leaves no goroutine
// behind.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "FENCEPOST_") {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv(libcuda.PathVariable, "no/libcuda.so.1")
	if dir := os.Getenv(stopChild); dir != "" {
		runStopChild(dir)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open opens a runtime that the test's end closes, and that must leave
// nothing behind by then.
func open(t *testing.T, cfg fencepost.Config) *fencepost.Runtime {
	t.Helper()
	rt := openDirty(t, cfg)
	t.Cleanup(func() {
		left, err := rt.Close(context.Background())
		if err != nil || len(left.Leaks) > 0 || left.OpenIntents > 0 {
			t.Errorf("the end: %v; left over: %+v", err, left)
		}
		for _, f := range rt.Findings().Recent() {
			t.Errorf("a finding: %v", f)
		}
	})
	return rt
}

// openDirty opens a runtime for a test that plants something.
func openDirty(t *testing.T, cfg fencepost.Config) *fencepost.Runtime {
	t.Helper()
	rt, err := fencepost.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = rt.Close(context.Background()) }) // for tests that end early
	return rt
}

func lease(t *testing.T, rt *fencepost.Runtime, tag core.Tag) *cuda.Lease {
	t.Helper()
	l, err := rt.Streams().Acquire(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() }) // the test may have released it
	return l
}

func allocate(t *testing.T, rt *fencepost.Runtime, bytes uint64, on core.StreamID, tag core.Tag) core.Block {
	t.Helper()
	b, err := rt.Allocate(t.Context(), core.Request{Bytes: bytes, Stream: on, Tag: tag})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func free(t *testing.T, rt *fencepost.Runtime, blocks ...core.Block) {
	t.Helper()
	for _, b := range blocks {
		if _, err := rt.Deallocate(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func simulated(rt *fencepost.Runtime) *sim.Device { return rt.Driver().(*sim.Device) }

// succeed fails the test if err is not nil.
func succeed(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
