package cuda_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func (b *bench) host(n int) *cuda.HostBuffer[int32] {
	b.Helper()
	buf, err := cuda.AllocHost[int32](b.Memory, n)
	must(b, err)
	return buf
}

func TestHostBufferCopiesBothWays(t *testing.T) {
	for _, s := range []sim.Schedule{sim.FreeRunning(), sim.Seeded(1)} {
		t.Run(s.String(), func(t *testing.T) {
			b := newBench(t, withSchedule(s))
			l := b.leases(1)[0]
			buf, slice := b.host(100), b.numbers(l, 100, 0)
			equal(t, "length", buf.Len(), 100)
			equal(t, "bytes", buf.Bytes(), 400)
			equal(t, "has an address", buf.Ptr() != 0, true)
			for i := range buf.Values() {
				buf.Values()[i] = int32(i)
			}
			must(t, cuda.CopyToDevice(ctx, slice, l.ID(), buf.Values()))
			b.sync(l)
			clear(buf.Values())
			must(t, cuda.CopyToHost(ctx, buf.Values()[50:], slice, l.ID()))
			b.sync(l)
			equal(t, "a value copied back", buf.Values()[99], 49)
			equal(t, "a value before them", buf.Values()[49], 0)
			must(t, buf.Free(ctx))
		})
	}
}

func TestHostBufferIsFreedOnceAndMayBeEmpty(t *testing.T) {
	b := newBench(t)
	for _, n := range []int{0, 1} {
		buf := b.host(n)
		equal(t, "values", len(buf.Values()), n)
		must(t, buf.Free(ctx))
		if err := buf.Free(ctx); !errors.Is(err, core.ErrUseAfterFree) {
			t.Errorf("second Free of %d values: %v", n, err)
		}
		equal(t, "values after Free", len(buf.Values()), 0)
	}
	equal(t, "driver's allocations", b.faults.Calls(drivertest.HostAlloc), 1)
	for _, n := range []int{-1, math.MaxInt} {
		if _, err := cuda.AllocHost[uint64](b.Memory, n); !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("%d values: %v", n, err)
		}
	}
}

// A copy from a buffer does not wait, and Free waits for the copy, until its
// context ends.
func TestHostBufferFreeWaitsForItsCopies(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	busy, other, slice := b.host(8), b.host(8), b.numbers(s[0], 8, 0)
	b.sync(s...)
	release := b.hold(s[1])
	must(t, cuda.CopyToDevice(ctx, slice, s[1].ID(), busy.Values()[4:])) // returns at once
	for range 2 {
		bounded, cancel := within(5)
		if err := busy.Free(bounded); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a buffer was freed under a copy: %v", err)
		}
		cancel()
	}
	equal(t, "values of a buffer that is not freed", len(busy.Values()), 8)
	equal(t, "frees that the driver saw", b.faults.Calls(drivertest.HostFree), 0)

	// No copy uses the other, but the driver waits for all work.
	bounded, cancel := within(5)
	defer cancel()
	expect.Error(t, other.Free(bounded), context.DeadlineExceeded)
	equal(t, "values of a buffer that is being freed", len(other.Values()), 0)
	release()
	must(t, other.Free(ctx))
	must(t, busy.Free(ctx))
	equal(t, "frees that the driver saw", b.faults.Calls(drivertest.HostFree), 2)
}

func TestHostBufferSurvivesTheDriversErrors(t *testing.T) {
	b := newBench(t, dirty)
	l := b.leases(1)[0]
	b.faults.FailMethod(drivertest.HostAlloc, 1, driver.OutOfMemory)
	expect.ErrorOf(cuda.AllocHost[byte](b.Memory, 8))(t, core.ErrOutOfMemory)
	buf, slice := b.host(8), b.numbers(l, 8, 0)
	b.sync(l)
	b.faults.FailMethod(drivertest.HostFree, 1, driver.InvalidValue)
	expect.Error(t, buf.Free(ctx), core.ErrDriver)
	equal(t, "values after a failed Free", len(buf.Values()), 8)

	// A query that fails is not taken for an answer.
	release := b.hold(l)
	must(t, cuda.CopyToDevice(ctx, slice, l.ID(), buf.Values()))
	b.faults.FailEvery(drivertest.EventQuery, driver.InvalidHandle)
	expect.Error(t, buf.Free(ctx), core.ErrDriver)
	b.faults.Clear()
	release()
	must(t, buf.Free(ctx))

	// If nothing can be recorded behind a copy, it may last for ever.
	lost := b.host(8)
	b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	b.faults.FailMethod(drivertest.StreamSynchronize, 1, driver.InvalidHandle)
	expect.Error(t, cuda.CopyToDevice(ctx, slice, l.ID(), lost.Values()), core.ErrDriver)
	if err := lost.Free(ctx); err == nil {
		t.Error("memory that the device may use for ever was freed")
	}
}

func TestHostBufferHammer(t *testing.T) {
	b := newBench(t, ticking)
	var all sync.WaitGroup
	for i := range 4 {
		l := b.leases(1)[0]
		slice := b.numbers(l, 64, 0)
		all.Go(func() {
			for round := range int32(30) {
				in, err := cuda.AllocHost[int32](b.Memory, 64)
				must(t, err)
				out, err := cuda.AllocHost[int32](b.Memory, 64)
				must(t, err)
				in.Values()[i] = round
				must(t, cuda.CopyToDevice(ctx, slice, l.ID(), in.Values()))
				must(t, cuda.CopyToHost(ctx, out.Values(), slice, l.ID()))
				must(t, in.Free(ctx))
				b.sync(l)
				if got := out.Values()[i]; got != round {
					t.Errorf("got %d, want %d", got, round)
				}
				must(t, out.Free(ctx))
			}
		})
	}
	all.Wait()
	equal(t, "host memory left", b.Sim.Books().HostBlocks, 0)
}

// sweepHostBuffers is the script for the table of all methods.
func sweepHostBuffers(x *sweep) error {
	l, err := x.lease()
	if err != nil {
		return err
	}
	buf, err := cuda.AllocHost[byte](x.memory, 256)
	if err != nil {
		return err
	}
	x.later(func() error {
		if err := buf.Free(ctx); !errors.Is(err, core.ErrUseAfterFree) {
			return err
		}
		return nil
	})
	slice, err := x.bytes(l)
	if err != nil {
		return err
	}
	return errors.Join(
		cuda.CopyToDevice(ctx, slice, l.ID(), buf.Values()),
		cuda.CopyToHost(ctx, buf.Values(), slice, l.ID()),
		buf.Free(ctx), slice.Free(ctx))
}
