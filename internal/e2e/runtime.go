package e2e

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/fenceposttest"
)

// ResourceVariable is the environment's choice of the backend for tests that make none:
// "async" is the driver's pool. A test that makes one says what only that backend does: a
// free of the driver's pool is a call that can fail, and it is pending until the device has
// come to it.
const ResourceVariable = "FENCEPOST_E2E_RESOURCE"

// resource is what it chose.
var resource string

// Backends are those that a test over both backends takes. With -short it is the one that
// [ResourceVariable] chose, or the own pool: CI runs these packages once over each.
func Backends() []fencepost.Backend {
	switch {
	case !testing.Short():
		return []fencepost.Backend{fencepost.Pool, fencepost.Async}
	case resource != "":
		return []fencepost.Backend{fencepost.Backend(resource)}
	}
	return []fencepost.Backend{fencepost.Pool}
}

// Main runs the tests of a package as Isolate says, and demands that every
// runtime leaves no goroutine behind.
func Main(m *testing.M) {
	Isolate()
	goleak.VerifyTestMain(m)
}

// Isolate clears the environment's overrides, all but the seed of tests, which would change what the tests
// build, and hides the GPU that this machine may have, so that they build the same
// everywhere.
func Isolate() {
	resource = os.Getenv(ResourceVariable)
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "FENCEPOST_") && name != "FENCEPOST_SEED" {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv(libcuda.PathVariable, "no/libcuda.so.1")
}

// Open opens a runtime that the test's end closes, and that must leave
// nothing behind by then.
func Open(t *testing.T, cfg fencepost.Config) *fencepost.Runtime {
	t.Helper()
	rt := OpenDirty(t, cfg)
	fenceposttest.Check(t, rt)
	return rt
}

// OpenDirty opens a runtime for a test that plants something.
func OpenDirty(t *testing.T, cfg fencepost.Config) *fencepost.Runtime {
	t.Helper()
	if cfg.Resource == "" {
		cfg.Resource = fencepost.Backend(resource)
	}
	rt, err := fencepost.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = rt.Close(context.Background()) }) // for tests that end early
	return rt
}

// Blind is a simulated device whose oracle tells a runtime nothing, for tests of what the guard
// finds by its bytes.
func Blind(t *testing.T) driver.Driver {
	t.Helper()
	d, err := sim.Open(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Lease acquires a stream until the test ends.
func Lease(t *testing.T, rt *fencepost.Runtime, tag core.Tag) *cuda.Lease {
	t.Helper()
	l, err := rt.Streams().Acquire(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() }) // the test may have released it
	return l
}

// Allocate allocates a block, which the test frees.
func Allocate(t *testing.T, rt *fencepost.Runtime, bytes uint64, on core.StreamID, tag core.Tag) core.Block {
	t.Helper()
	b, err := rt.Allocate(t.Context(), core.Request{Bytes: bytes, Stream: on, Tag: tag})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Free frees blocks.
func Free(t *testing.T, rt *fencepost.Runtime, blocks ...core.Block) {
	t.Helper()
	for _, b := range blocks {
		if _, err := rt.Deallocate(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// Simulated is the device that a runtime is on.
func Simulated(rt *fencepost.Runtime) *sim.Device { return rt.Driver().(*sim.Device) }

// Succeed fails the test if err is not nil.
func Succeed(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Life is a lease, a block, a launch that writes it, and the end of them.
func Life(ctx context.Context, rt *fencepost.Runtime) error {
	s, err := rt.Streams().Acquire(ctx, "life")
	if err != nil {
		return err
	}
	b, err := rt.Allocate(ctx, core.Request{Bytes: 4096, Stream: s.ID(), Tag: "life"})
	if err == nil {
		err = rt.Launch(ctx, s.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
			return rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested, s.Handle())
		})
		_, freeErr := rt.Deallocate(ctx, b.ID)
		err = errors.Join(err, freeErr)
	}
	return errors.Join(err, s.Release(), rt.Drain(ctx))
}

// ErrorOf is the error of two results.
func ErrorOf[T any](_ T, err error) error { return err }

// GuardSettings are what ParseMode takes, one of each kind and the options of a
// hunt in every combination that matters to memory.
var GuardSettings = []string{"off", "ledger", "sample", "sample:1", "hunt", "hunt:bisect", "hunt:delay", "hunt:unmap", "hunt:bisect+unmap", "hunt:bisect+delay+unmap"}

// AddTwin is a kernel, add(to, from, n, v): to[i] = from[i] + v.
var AddTwin = sim.Kernel{
	Name: "add",
	Declare: func(a sim.Args) []sim.Range {
		n := 4 * uint64(a.U32(2))
		return []sim.Range{sim.Writes(a.Ptr(0), n), sim.Reads(a.Ptr(1), n)}
	},
	Run: func(x *sim.Exec) {
		a := x.Args()
		n := int(a.U32(2))
		to := sim.WriteSlice[uint32](x, a.Ptr(0), n)
		for i, v := range sim.ReadSlice[uint32](x, a.Ptr(1), n) {
			to[i] = v + a.U32(3)
		}
	},
}
