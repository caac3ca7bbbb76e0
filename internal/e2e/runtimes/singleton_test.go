package runtimes_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func device(t *testing.T, ordinal int) *fencepost.Runtime {
	t.Helper()
	rt, err := fencepost.Device(ordinal)
	must.Do(t, err)
	t.Cleanup(func() {
		if _, err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

func TestDeviceRefusesOrdinalsOutOfRange(t *testing.T) {
	for _, ordinal := range []int{-1, core.MaxOrdinals, 1 << 20} {
		if rt, err := fencepost.Device(ordinal); rt != nil || !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("Device(%d) = %v, %v, want a refusal", ordinal, rt, err)
		}
	}
}

func TestDeviceHasOneRuntimeForEachOfSixteenOrdinals(t *testing.T) {
	seen := map[*fencepost.Runtime]bool{}
	for ordinal := range core.MaxOrdinals {
		rt := device(t, ordinal)
		if rt.Ordinal() != ordinal {
			t.Errorf("Device(%d) serves device %d", ordinal, rt.Ordinal())
		}
		if again := device(t, ordinal); again != rt {
			t.Errorf("Device(%d) built a second runtime", ordinal)
		}
		seen[rt] = true
	}
	if len(seen) != core.MaxOrdinals {
		t.Errorf("%d runtimes for %d ordinals", len(seen), core.MaxOrdinals)
	}
}

// The variable names the device of a program that names none; this one does.
func TestDeviceServesTheOrdinalItWasAskedFor(t *testing.T) {
	t.Setenv("FENCEPOST_ORDINAL", "7")
	if got := device(t, 2).Ordinal(); got != 2 {
		t.Errorf("Device(2) serves device %d", got)
	}
}

func TestDeviceIsBuiltOnceUnderConcurrentFirstCalls(t *testing.T) {
	const callers = 32
	for round := range 8 {
		var group sync.WaitGroup
		start := make(chan struct{})
		built := make([]*fencepost.Runtime, callers)
		for i := range callers {
			group.Go(func() {
				<-start
				rt, err := fencepost.Device(1)
				expect.Success(t, err)
				built[i] = rt
			})
		}
		close(start)
		group.Wait()
		for _, rt := range built {
			if rt == nil || rt != built[0] {
				t.Fatalf("round %d: concurrent first calls got different runtimes", round)
			}
		}
		must.Get(built[0].Close(t.Context()))(t)
	}
}

func TestAFailedBuildOfADeviceIsRetried(t *testing.T) {
	t.Setenv("FENCEPOST_GUARD", "paranoid")
	if _, err := fencepost.Device(4); !errors.Is(err, core.ErrInvalidRequest) {
		t.Fatalf("got %v, want a refusal", err)
	}
	t.Setenv("FENCEPOST_GUARD", "")
	t.Setenv("FENCEPOST_DEVICE", "cuda")
	if _, err := fencepost.Device(4); !errors.Is(err, libcuda.ErrNoDriver) {
		t.Fatalf("got %v, want %v", err, libcuda.ErrNoDriver)
	}
	t.Setenv("FENCEPOST_DEVICE", "sim")
	rt := device(t, 4)
	e2e.Free(t, rt, e2e.Allocate(t, rt, 64, core.DefaultStream, "a"))
}

func TestAClosedDeviceIsBuiltAnew(t *testing.T) {
	first := device(t, 0)
	must.Get(first.Close(t.Context()))(t)
	second := device(t, 0)
	if second == first {
		t.Fatal("Device returned the closed runtime")
	}
	e2e.Free(t, second, e2e.Allocate(t, second, 64, core.DefaultStream, "a"))
	if _, err := first.Close(t.Context()); err != nil { // must not forget the second
		t.Fatal(err)
	}
	if third := device(t, 0); third != second {
		t.Error("a second Close of the first runtime made Device forget the second")
	}
}

func TestTwoRuntimesOnOneSimulatedOrdinalAreTwoDevices(t *testing.T) {
	first, second := e2e.Open(t, fencepost.Config{Guard: "off"}), e2e.Open(t, fencepost.Config{Guard: "off"})
	if first.Ordinal() != second.Ordinal() {
		t.Fatalf("ordinals %d and %d", first.Ordinal(), second.Ordinal())
	}
	left, _, err := second.Driver().MemInfo()
	e2e.Succeed(t, "memory info", err)
	b := e2e.Allocate(t, first, 1<<30, core.DefaultStream, "a")
	if after, _, err := second.Driver().MemInfo(); err != nil || after != left {
		t.Errorf("an allocation on the first left the second %d of %d bytes (%v)", after, left, err)
	}
	if _, err := second.Deallocate(t.Context(), b.ID); err == nil {
		t.Error("the second freed a block of the first")
	}
	e2e.Free(t, first, b)
	if _, err := fencepost.Open(t.Context(), fencepost.Config{Driver: first.Driver()}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("a second runtime on the first's device: %v, want a refusal", err)
	}
	if _, err := fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{first, second}}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("one handler for both: %v, want a refusal", err)
	}
}
