package fenceposttest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/fenceposttest"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// inner is a test within a test: it keeps what it is told.
type inner struct {
	testing.TB
	errors, fatal []string
	atEnd         []func()
}

func (t *inner) Helper()                  {}
func (t *inner) Context() context.Context { return context.Background() }
func (t *inner) Cleanup(f func())         { t.atEnd = append(t.atEnd, f) }
func (t *inner) Errorf(format string, args ...any) {
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}
func (t *inner) Fatalf(format string, args ...any) {
	t.fatal = append(t.fatal, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// run runs a test to its end.
func run(test func(testing.TB)) *inner {
	t, done := new(inner), make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(t.atEnd) {
				f()
			}
		}()
		test(t)
	}()
	<-done
	return t
}

// add runs the kernel over n values of a column of 64.
func add(rt *fencepost.Runtime, n uint32) error {
	module, err := rt.Load("fenceposttest", nil, e2e.AddTwin)
	if err != nil {
		return err
	}
	kernel, err := module.Kernel("add")
	if err != nil {
		return err
	}
	return rt.Do(context.Background(), "adder", func(j *fencepost.Job) error {
		column, err := fencepost.Upload(j, make([]uint32, 64))
		if err != nil {
			return err
		}
		return j.Launch(kernel, cuda.Blocks1D(int(n), 64),
			fencepost.Writes(column), fencepost.Reads(column), fencepost.Value(n), fencepost.Value(uint32(7)))
	})
}

func allocate(rt *fencepost.Runtime, bytes uint64) (core.Block, error) {
	return rt.Allocate(context.Background(), core.Request{Bytes: bytes, Tag: "forgotten"})
}

func TestARightServiceFailsNoTestHoweverItIsClosed(t *testing.T) {
	for _, closes := range []bool{false, true} {
		ran := run(func(in testing.TB) {
			rt := fenceposttest.Open(in, fencepost.Config{})
			must.Do(t, add(rt, 64))
			if closes {
				must.Get(rt.Close(context.Background()))(t)
			}
		})
		if len(ran.errors)+len(ran.fatal) > 0 {
			t.Errorf("closed by itself: %v: %q %q", closes, ran.errors, ran.fatal)
		}
	}
}

// Each of these is told by name, and whatever happens the test ends.
func TestEachThingThatIsWrongFailsTheTest(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*fencepost.Runtime) error
		want []string
	}{
		"a write past the end": {func(rt *fencepost.Runtime) error { return add(rt, 65) },
			[]string{"found: " + names.FindingOutOfBoundsWrite, `"add"`, "fenceposttest_test.go:"}},
		"a leak": {func(rt *fencepost.Runtime) error { return e2e.ErrorOf(allocate(rt, 64)) },
			[]string{"left over: 64 bytes", "forgotten", "fenceposttest_test.go:"}},
		"a launch that never ends": {func(rt *fencepost.Runtime) error {
			b, err := allocate(rt, 64)
			_, prepared := rt.Core().PrepareUse(context.Background(),
				core.UseRequest{Uses: []core.Use{{Block: b.ID, Access: core.Read}}})
			return errors.Join(err, prepared)
		}, []string{"1 uses never ended"}},
		"a lease that stays out": {func(rt *fencepost.Runtime) error {
			return e2e.ErrorOf(rt.Streams().Acquire(context.Background(), "keeper"))
		}, []string{"closing the runtime: ", "still leased", "keeper"}},
		"a refusal": {func(rt *fencepost.Runtime) error { return refused(allocate(rt, 64<<20)) },
			[]string{"found: " + names.FindingOutOfMemory}},
		"findings that are not kept": {func(rt *fencepost.Runtime) error {
			return errors.Join(add(rt, 65), refused(allocate(rt, 64<<20)))
		}, []string{"found 1 times: " + names.FindingOutOfBoundsWrite, "found: " + names.FindingOutOfMemory}},
	} {
		ran := run(func(in testing.TB) {
			cfg := fencepost.Config{Pool: small, CloseTimeout: 100 * time.Millisecond,
				Findings: telemetry.FindingsConfig{Keep: 1}}
			must.Do(t, c.do(fenceposttest.Open(in, cfg)))
		})
		told := strings.Join(ran.errors, "\n")
		for _, want := range c.want {
			if !strings.Contains(told, want) {
				t.Errorf("%s: %q is not told:\n%s", name, want, told)
			}
		}
	}
}

// small is a pool that lacks memory although the budget has it.
var small = cuda.PoolConfig{Limit: 8 << 20}

func refused(_ core.Block, err error) error {
	if !errors.Is(err, core.ErrOutOfMemory) {
		return fmt.Errorf("not refused: %w", err)
	}
	return nil
}

func TestAKindThatIsExpectedFailsNothingAndHidesNoOther(t *testing.T) {
	for n, want := range map[uint32]int{64: 0, 65: 1} {
		ran := run(func(in testing.TB) {
			rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Pool: small}))(t)
			fenceposttest.Check(in, rt, names.FindingOutOfMemory)
			must.Do(t, refused(allocate(rt, 64<<20)), add(rt, n))
		})
		if len(ran.errors) != want {
			t.Errorf("%d values: %q", n, ran.errors)
		}
	}
}

func TestWhatAConfigSaysStays(t *testing.T) {
	run(func(in testing.TB) {
		if got := fenceposttest.Open(in, fencepost.Config{}).GuardStatus().Setting; got != "hunt:bisect" {
			t.Errorf("the guard is %q", got)
		}
	})
	run(func(in testing.TB) {
		drv := e2e.Blind(t)
		rt := fenceposttest.Open(in, fencepost.Config{Guard: "ledger", Driver: drv})
		if got := rt.GuardStatus().Setting; got != "ledger" || rt.Driver() != drv {
			t.Errorf("the guard is %q, the driver %v", got, rt.Driver())
		}
	})
	ran := run(func(in testing.TB) { fenceposttest.Open(in, fencepost.Config{Device: "abacus"}) })
	if len(ran.fatal) != 1 || !strings.Contains(ran.fatal[0], "abacus") {
		t.Errorf("a device that is none: %q", ran.fatal)
	}
}
