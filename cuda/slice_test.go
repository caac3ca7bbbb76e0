package cuda_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func options(on *cuda.Lease) cuda.AllocOptions {
	return cuda.AllocOptions{Stream: on.ID(), Tag: "test"}
}

// roundTrip sends values up on one stream and down on another.
func roundTrip[T cuda.Element](b *bench, values ...T) {
	b.Helper()
	s := b.leases(2)
	up, err := cuda.Alloc[T](ctx, b.Memory, len(values), options(s[0]))
	must(b, err)
	must(b, cuda.CopyToDevice(ctx, up, s[0].ID(), values))
	copied, err := cuda.Alloc[T](ctx, b.Memory, len(values), options(s[1]))
	must(b, err)
	must(b, cuda.CopyOnDevice(ctx, copied, up, s[1].ID()))
	got, err := cuda.Download(ctx, copied, s[0].ID())
	must(b, err)
	if !slices.Equal(got, values) {
		b.Errorf("%T: got %v, want %v", got, got, values)
	}
	must(b, errors.Join(up.Free(ctx), copied.Free(ctx)))
	must(b, errors.Join(s[0].Release(), s[1].Release()))
}

type celsius float32

func TestValuesOfEveryElementTypeMakeTheRoundTrip(t *testing.T) {
	b := newBench(t)
	roundTrip[int8](b, math.MinInt8, 0, math.MaxInt8)
	roundTrip[int16](b, math.MinInt16, 0, math.MaxInt16)
	roundTrip[int32](b, math.MinInt32, 0, math.MaxInt32)
	roundTrip[int64](b, math.MinInt64, 0, math.MaxInt64)
	roundTrip[uint8](b, 0, 1, math.MaxUint8)
	roundTrip[uint16](b, 0, 1, math.MaxUint16)
	roundTrip[uint32](b, 0, 1, math.MaxUint32)
	roundTrip[uint64](b, 0, 1, math.MaxUint64)
	roundTrip[float32](b, -1.5, 0, math.MaxFloat32)
	roundTrip[float64](b, -1.5, 0, math.Inf(1))
	roundTrip(b, celsius(-273.15), 0, 100)
}

func TestEmptySliceNeedsNoFence(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	empty, err := cuda.Alloc[float64](ctx, b.Memory, 0, options(l))
	must(t, err)
	equal(t, "generation", empty.BlockID().Generation, core.NoBytes)
	if empty.Len() != 0 || empty.Bytes() != 0 || empty.Ptr() != 0 {
		t.Errorf("an empty slice has %d values, %d bytes, at %#x", empty.Len(), empty.Bytes(), empty.Ptr())
	}
	calls := b.faults.Total()
	must(t, errors.Join(cuda.CopyToDevice(ctx, empty, l.ID(), nil), cuda.Memset(ctx, empty, l.ID(), 1), cuda.CopyOnDevice(ctx, empty, empty, l.ID()), cuda.CopyToHost(ctx, nil, empty, l.ID())))
	must(t, empty.Free(ctx))
	equal(t, "driver calls for nothing", b.faults.Total()-calls, 0)
	expect.Error(t, empty.Free(ctx), core.ErrUseAfterFree, "second free")
}

func TestSizesThatCannotBeAreRefused(t *testing.T) {
	b := newBench(t)
	expect.ErrorOf(cuda.Alloc[uint64](ctx, b.Memory, -1, cuda.AllocOptions{}))(t, core.ErrInvalidRequest, "-1 values")
	if strconv.IntSize == 64 {
		expect.ErrorOf(cuda.Alloc[uint64](ctx, b.Memory, math.MaxInt, cuda.AllocOptions{}))(t, core.ErrInvalidRequest, "more than 64 bits of bytes")
	}
	for _, m := range []*cuda.MemoryManager{b.Memory, cuda.NewUntrackedManager(b.Driver, b.Streams, 0)} {
		expect.ErrorOf(cuda.Alloc[byte](ctx, m, math.MaxInt, cuda.AllocOptions{}))(t, core.ErrOutOfMemory, "more bytes than there are")
	}
	equal(t, "live bytes", b.Runtime.Stats().Live.Bytes, 0)
}

func TestCopiesThatDoNotFitAreRefused(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	small, large := b.owned(l), b.owned(l)
	part, err := small.View(0, 8)
	must(t, err)
	for name, err := range map[string]error{
		"to device": cuda.CopyToDevice(ctx, part, l.ID(), make([]uint32, 9)),
		"to host":   cuda.CopyToHost(ctx, make([]uint32, 9), part, l.ID()),
		"on device": cuda.CopyOnDevice(ctx, part, large, l.ID()),
	} {
		expect.Error(t, err, core.ErrInvalidRequest, name)
	}
	misuse(t, "between managers", cuda.CopyOnDevice(ctx, large, b.legacy(), l.ID()))
	must(t, part.Free(ctx))
}

func TestViewKeepsItsBlock(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	slice, err := cuda.Alloc[uint32](ctx, b.Memory, 8, options(l))
	must(t, err)
	must(t, cuda.CopyToDevice(ctx, slice, l.ID(), []uint32{0, 1, 2, 3, 4, 5, 6, 7}))
	view, err := slice.View(2, 6)
	must(t, err)
	inner, err := view.View(1, 3)
	must(t, err)
	equal(t, "block", view.BlockID(), slice.BlockID())
	equal(t, "tag", inner.Tag(), "test")
	equal(t, "address", inner.Ptr(), slice.Ptr()+12)
	must(t, slice.Free(ctx))
	must(t, view.Free(ctx))
	got, err := cuda.Download(ctx, inner, l.ID())
	must(t, err)
	if !slices.Equal(got, []uint32{3, 4}) {
		t.Errorf("the view of a view holds %v", got)
	}
	equal(t, "state", b.Runtime.State(inner.BlockID()), core.Live)
	must(t, inner.Free(ctx))
	expect.ErrorOf(slice.View(0, 1))(t, core.ErrUseAfterFree, "view of a freed slice")
	expect.Error(t, view.Free(ctx), core.ErrUseAfterFree, "second free of a view")
}

func TestViewsOutsideTheSliceAreRefused(t *testing.T) {
	b := newBench(t)
	slice := b.owned(b.leases(1)[0])
	for _, r := range [][2]int{{-1, 2}, {3, 2}, {0, 65}, {65, 65}, {math.MinInt, math.MaxInt}} {
		if _, err := slice.View(r[0], r[1]); !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("view %v: %v", r, err)
		}
	}
	empty, err := slice.View(64, 64)
	must(t, err)
	equal(t, "generation of an empty view", empty.BlockID().Generation, core.NoBytes)
	must(t, empty.Free(ctx))
}

func TestAFailedFreeOfASliceCanBeRetried(t *testing.T) {
	b := newBench(t)
	tracked, untracked := b.owned(b.leases(1)[0]), b.legacy()
	view, err := tracked.View(0, 1)
	must(t, err)
	must(t, tracked.Free(ctx))
	b.faults.FailMethod(drivertest.MemFreeAsync, 1, driver.InvalidValue)
	b.faults.FailMethod(drivertest.MemFree, 1, driver.InvalidValue)
	for name, free := range map[string]func() error{
		"tracked":   func() error { return view.Free(ctx) },
		"untracked": func() error { return untracked.Free(ctx) },
	} {
		expect.Error(t, free(), core.ErrDriver, name)
	}
	must(t, view.Free(ctx)) // the untracked one is freed at the end
}

func TestUntrackedManagerKeepsItsLimitExactly(t *testing.T) {
	b := newBench(t)
	m := cuda.NewUntrackedManager(b.Driver, b.Streams, 1000)
	if m.Runtime() != nil {
		t.Error("an untracked manager has a runtime")
	}
	all, err := cuda.Alloc[byte](ctx, m, 1000, cuda.AllocOptions{})
	must(t, err)
	_, err = cuda.Alloc[byte](ctx, m, 1, cuda.AllocOptions{Tag: "late"})
	var refusal *core.OutOfBudgetError
	if !errors.As(err, &refusal) || refusal.Limit != 1000 || refusal.Remaining != 0 || refusal.Live != 1000 || refusal.Tag != "late" {
		t.Errorf("got %+v", err)
	}
	must(t, all.Free(ctx))
	b.faults.FailMethod(drivertest.MemAlloc, 1, driver.OutOfMemory)
	expect.ErrorOf(cuda.Alloc[byte](ctx, m, 1000, cuda.AllocOptions{}))(t, core.ErrOutOfMemory)
	again, err := cuda.Alloc[byte](ctx, m, 1000, cuda.AllocOptions{}) // a failure costs nothing
	must(t, err)
	must(t, again.Free(ctx))
}

// TestUntrackedManagerRefusesNothingThatFits has two callers that always fit
// and one that never does: adding before checking would refuse the two.
func TestUntrackedManagerRefusesNothingThatFits(t *testing.T) {
	m := cuda.NewUntrackedManager(&drivertest.Null{}, nil, 1000)
	var stop atomic.Bool
	var greedy, fitting sync.WaitGroup
	hold, err := cuda.Alloc[byte](ctx, m, 500, cuda.AllocOptions{})
	must(t, err)
	greedy.Go(func() {
		for !stop.Load() {
			if _, err := cuda.Alloc[byte](ctx, m, 900, cuda.AllocOptions{}); err == nil {
				t.Error("900 of 1000 bytes were granted beside 2 * 250")
				return
			}
		}
	})
	for range 2 {
		fitting.Go(func() {
			for range 20_000 {
				s, err := cuda.Alloc[byte](ctx, m, 250, cuda.AllocOptions{})
				if err == nil {
					err = s.Free(ctx)
				}
				if err != nil {
					t.Errorf("refused what fits: %v", err)
					return
				}
			}
		})
	}
	fitting.Wait()
	stop.Store(true)
	greedy.Wait()
	must(t, hold.Free(ctx))
}

func TestManagerNeedsARuntime(t *testing.T) {
	expect.ErrorOf(cuda.NewMemoryManager(&drivertest.Null{}, nil, nil))(t, core.ErrInvalidRequest)
}

func TestAnEmptySliceMayBeUsedInALaunch(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	empty, err := cuda.Alloc[int32](ctx, b.Memory, 0, cuda.AllocOptions{Stream: l.ID()})
	must(t, err)
	full, err := cuda.Alloc[int32](ctx, b.Memory, 8, cuda.AllocOptions{Stream: l.ID()})
	must(t, err)
	launched := false
	must(t, b.Runtime.Launch(ctx, l.ID(), []core.Use{empty.Use(core.Read), full.Use(core.Write)}, func(context.Context) error {
		launched = true
		return nil
	}))
	equal(t, "launched", launched, true)
	must(t, empty.Free(ctx))
	must(t, full.Free(ctx))
}
