package cuda_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func TestAFinishWithoutItsEventIsFencedBySynchronizing(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	blocks := b.allocs(s[0], 2, 256)
	ticket := b.prepare(s[1], writes(blocks...))
	b.enqueue(s[1], writes(blocks...))
	b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	err := b.Runtime.FinishUse(ctx, ticket)
	if !errors.Is(err, core.ErrDriver) || !strings.Contains(err.Error(), "synchronising") {
		t.Fatalf("got %v, want the failure and what was done about it", err)
	}
	done, err := b.Sim.StreamQuery(s[1].Handle())
	must(t, err)
	if !done {
		t.Error("the stream was not synchronised")
	}
	// nothing is left to wait for: the host has seen the work done
	equal(t, "waits of the next launch", b.launch(s[0], readWrites(blocks...)).waits, 0)
	b.free(blocks...)
}

func TestALaunchWithoutAnEventIsRefusedBeforeItIsEnqueued(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.faults.FailMethod(drivertest.EventCreate, 1, driver.OutOfMemory)
	if _, err := b.Runtime.PrepareBlockUse(ctx, block.ID, s[1].ID(), core.Write); !errors.Is(err, core.ErrOutOfMemory) {
		t.Fatalf("got %v", err)
	}
	equal(t, "open intents", b.Runtime.Stats().OpenIntents, 0)
	b.launch(s[1], writes(block))
	b.free(block)
}

func TestWhatCannotBeFencedIsPoisonedAndRefusedEverAfter(t *testing.T) {
	b := newBench(t, dirty)
	s := b.leases(2)
	block, other := b.alloc(s[0], 256), b.alloc(s[0], 256)
	ticket := b.prepare(s[1], writes(block))
	b.enqueue(s[1], writes(block))
	b.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	b.faults.FailMethod(drivertest.StreamSynchronize, 1, driver.InvalidHandle)
	if err := b.Runtime.FinishUse(ctx, ticket); !errors.Is(err, core.ErrDriver) || !strings.Contains(err.Error(), "poisoned") {
		t.Fatalf("got %v", err)
	}
	b.faults.Clear()
	equal(t, "poisoned blocks", b.Runtime.Stats().Poisoned, 1)
	for name, call := range map[string]func() error{
		"use":    func() error { _, err := b.Runtime.PrepareBlockUse(ctx, block.ID, s[0].ID(), core.Read); return err },
		"record": func() error { return b.Runtime.RecordBlockUse(ctx, block.ID, s[0].ID()) },
		"free":   func() error { _, err := b.Runtime.Deallocate(ctx, block.ID); return err },
	} {
		if err := call(); !errors.Is(err, core.ErrDriver) || !strings.Contains(err.Error(), "neither used nor reused") {
			t.Errorf("%s of a poisoned block: %v", name, err)
		}
	}
	b.launch(s[1], writes(other))
	b.free(other)
	b.drain()
	equal(t, "blocks on the device", b.Sim.Books().LiveBlocks, 1)
}

func TestARecordedUseThatCannotBeFencedPoisons(t *testing.T) {
	b := newBench(t, dirty)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	b.sync(s[0])
	b.faults.FailEvery(drivertest.EventRecord, driver.InvalidHandle)
	if err := b.Runtime.RecordBlockUse(ctx, block.ID, s[1].ID()); err == nil || b.Runtime.Stats().Poisoned != 0 {
		t.Fatalf("fenced by synchronising: %v, %+v", err, b.Runtime.Stats())
	}
	b.faults.FailEvery(drivertest.StreamSynchronize, driver.InvalidHandle)
	if err := b.Runtime.RecordBlockUse(ctx, block.ID, s[1].ID()); err == nil || b.Runtime.Stats().Poisoned != 1 {
		t.Fatalf("not fenced: %v, %+v", err, b.Runtime.Stats())
	}
}

func TestAFailedFreeLeavesTheBlockLive(t *testing.T) {
	b := newBench(t, deviceOrdered)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[1], writes(block))
	b.sync(s[1])
	for _, method := range []drivertest.Method{drivertest.StreamWait, drivertest.MemFreeAsync} {
		b.faults.FailMethod(method, 1, driver.InvalidValue)
		if _, err := b.Runtime.Deallocate(ctx, block.ID); !errors.Is(err, core.ErrDriver) {
			t.Fatalf("%v: %v", method, err)
		}
		b.faults.Clear()
		equal(t, "state", b.Runtime.State(block.ID), core.Live)
		st := b.Runtime.Stats()
		equal(t, "live blocks", st.Live.Blocks, 1)
		equal(t, "deallocations", st.Deallocations, 0)
		equal(t, "peak", st.PeakRequested, 256)
	}
	b.launch(s[0], readWrites(block))
	b.free(block)
}

func TestAnAllocationWithoutAnEventIsRefusedBeforeItIsMade(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	b.faults.FailMethod(drivertest.EventCreate, 1, driver.InvalidValue)
	if _, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256, Stream: s[0].ID()}); !errors.Is(err, core.ErrDriver) {
		t.Fatalf("got %v", err)
	}
	equal(t, "blocks on the device", b.Sim.Books().LiveBlocks, 0)
	st := b.Runtime.Stats()
	equal(t, "allocations and frees", st.Allocations+st.Deallocations, 0)
	equal(t, "failures", st.Failures, 1)
}

func TestARefusedLaunchIsAborted(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	module, err := cuda.LoadModule(b.Driver, driver.Image{Name: mixImage})
	must(t, err)
	kernel, err := module.Kernel(mixKernel)
	must(t, err)
	b.faults.FailMethod(drivertest.Launch, 1, driver.InvalidValue)
	err = kernel.Launch(ctx, b.Runtime, s[1], grid, declared(writes(block)), mixArgs(1, writes(block))...)
	if !errors.Is(err, core.ErrDriver) {
		t.Fatalf("got %v", err)
	}
	st := b.Runtime.Stats()
	equal(t, "aborts", st.Aborts, 1)
	equal(t, "launches", st.Launches, 0)
	b.free(block)
	must(t, module.Unload())
}

func TestALostDeviceIsPoisonedAndNothingHangs(t *testing.T) {
	b := newBench(t, dirty, ticking)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[1], writes(block))
	b.Sim.LoseContext(driver.IllegalAddress)
	err := b.Runtime.Launch(ctx, s[0].ID(), declared(reads(block)), func(context.Context) error { return nil })
	if !errors.Is(err, core.ErrSticky) {
		t.Fatalf("got %v", err)
	}
	expect.ErrorOf(b.Runtime.Allocate(ctx, core.Request{Bytes: 1}))(t, core.ErrSticky, "allocation on a lost device")
}
