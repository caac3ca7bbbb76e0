package cuda_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

const pattern = 0x8877665544332211

// guardBench is device operations over one block.
type guardBench struct {
	*bench
	ops   deviceops.Device
	on    *cuda.Lease
	block core.Block
}

func newGuardBench(t *testing.T, bytes uint64) *guardBench {
	t.Helper()
	b := newBench(t)
	ops, err := cuda.NewDeviceOps(b.Driver, b.Streams, guardkernels.Image())
	must(t, err)
	t.Cleanup(func() { must(t, ops.Close(ctx)) })
	g := &guardBench{bench: b, ops: ops, on: b.leases(1)[0]}
	g.block = b.alloc(g.on, bytes)
	t.Cleanup(func() { b.free(g.block) })
	return g
}

func (g *guardBench) at(offset, bytes uint64) deviceops.Region {
	return deviceops.Region{Ptr: g.block.ID.Ptr + offset, Bytes: bytes, Pattern: pattern}
}

// tabled is a region among so many that they do not travel as arguments.
func tabled(r deviceops.Region) []deviceops.Region {
	return append(make([]deviceops.Region, driver.GuardFew), r)
}

func (g *guardBench) verify(regions ...deviceops.Region) []deviceops.Mismatch {
	g.Helper()
	v, err := g.ops.Verify(ctx, g.on.ID(), regions)
	must(g, err)
	must(g, v.Wait(ctx))
	bad, err := v.Mismatches()
	must(g, err)
	if _, err := v.Mismatches(); err == nil {
		g.Error("the results were given twice")
	}
	return bad
}

func TestFilledRegionsHoldTheirPattern(t *testing.T) {
	g := newGuardBench(t, 4096)
	regions := []deviceops.Region{g.at(0, 1), g.at(3, 7), g.at(11, 8), g.at(21, 17), g.at(101, 1001), g.at(4095, 1), g.at(2000, 0)}
	must(t, g.ops.Fill(ctx, g.on.ID(), regions))
	if bad := g.verify(regions...); len(bad) > 0 {
		t.Errorf("mismatches: %+v", bad)
	}
	got := make([]byte, 1001)
	must(t, g.Driver.CopyToHostAsync(got, g.block.ID.Ptr+101, g.on.Handle()))
	must(t, g.ops.Synchronize(ctx, g.on.ID()))
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], pattern)
	for i, v := range got {
		if v != word[i%8] {
			t.Fatalf("byte %d is %#x", i, v)
		}
	}
}

// A few regions travel as arguments: from none to a large one, and nothing
// around them is touched.
func TestAFewRegionsAreFilledWithoutMemoryOrEvents(t *testing.T) {
	g := newGuardBench(t, 8<<20)
	must(t, g.Driver.MemsetAsync(g.block.ID.Ptr, 0xa5, 8<<20, g.on.Handle()))
	regions := []deviceops.Region{g.at(3, 7), g.at(4096, 0), g.at(5000, 256), g.at(1<<20+5, 5<<20+3)}
	regions[2].Pattern = 42
	for n := range len(regions) + 1 {
		must(t, g.ops.Fill(ctx, g.on.ID(), regions[:n]))
	}
	equal(t, "host allocations", g.faults.Calls(drivertest.HostAlloc), 0)
	equal(t, "launches", g.faults.Calls(drivertest.Launch), uint64(len(regions)))
	if bad := g.verify(regions...); len(bad) > 0 {
		t.Errorf("mismatches: %+v", bad)
	}
	around := []deviceops.Region{g.at(0, 3), g.at(10, 4990), g.at(5256, 1<<20+5-5256), g.at(6<<20+8, 2<<20-8)}
	for i := range around {
		around[i].Pattern = 0xa5a5a5a5a5a5a5a5
	}
	if bad := g.verify(around...); len(bad) > 0 {
		t.Errorf("touched around them: %+v", bad)
	}
}

func TestMismatchesNameTheFirstBadByte(t *testing.T) {
	g := newGuardBench(t, 4096)
	regions := []deviceops.Region{g.at(0, 64), g.at(65, 63), g.at(200, 9)}
	must(t, g.ops.Fill(ctx, g.on.ID(), regions))
	must(t, g.Driver.MemsetAsync(g.block.ID.Ptr+65+10, 0xee, 3, g.on.Handle()))
	must(t, g.Driver.MemsetAsync(g.block.ID.Ptr+208, 0xdd, 1, g.on.Handle()))
	bad := g.verify(regions...)
	want := []deviceops.Mismatch{
		{Region: 1, Offset: 10, BadBytes: 3, Expected: 0x33, Seen: 0xee},
		{Region: 2, Offset: 8, BadBytes: 1, Expected: 0x11, Seen: 0xdd},
	}
	if len(bad) != 2 || bad[0] != want[0] || bad[1] != want[1] {
		t.Errorf("got %+v, want %+v", bad, want)
	}
}

func TestBatchesOfManyRegions(t *testing.T) {
	g := newGuardBench(t, 1<<20)
	var regions []deviceops.Region
	for i := range uint64(3000) {
		regions = append(regions, g.at(i*300, i%256))
	}
	must(t, g.ops.Fill(ctx, g.on.ID(), regions))
	must(t, g.Driver.MemsetAsync(g.block.ID.Ptr+2999*300, 0, 1, g.on.Handle()))
	bad := g.verify(regions...)
	if len(bad) != 1 || bad[0].Region != 2999 {
		t.Errorf("mismatches: %+v", bad)
	}
}

// Regions so large that they go to the device in pieces, between small ones.
func TestLargeRegionsAreReportedWhole(t *testing.T) {
	g := newGuardBench(t, 8<<20)
	regions := []deviceops.Region{g.at(0, 9), g.at(13, 1<<20+5), g.at(2<<20, 0), g.at(2<<20, 5<<20), g.at(7<<20, 64)}
	must(t, g.ops.Fill(ctx, g.on.ID(), regions))
	if bad := g.verify(regions...); len(bad) > 0 {
		t.Fatalf("mismatches: %+v", bad)
	}
	spoil := func(offset, n uint64) {
		must(t, g.Driver.MemsetAsync(g.block.ID.Ptr+offset, 0xee, n, g.on.Handle()))
	}
	spoil(13+(1<<20+4), 1)
	spoil(2<<20+600_000, 300_000)
	spoil(7<<20-1, 1)
	bad := g.verify(regions...)
	want := []deviceops.Mismatch{
		{Region: 1, Offset: 1<<20 + 4, BadBytes: 1, Expected: 0x55, Seen: 0xee},
		{Region: 3, Offset: 600_000, BadBytes: 300_001, Expected: 0x11, Seen: 0xee},
	}
	if !slices.Equal(bad, want) {
		t.Errorf("got %+v, want %+v", bad, want)
	}
}

func (g *guardBench) sums(regions ...deviceops.Region) []uint64 {
	g.Helper()
	c, err := g.ops.Checksum(ctx, g.on.ID(), regions)
	must(g, err)
	must(g, c.Wait(ctx))
	sums, err := c.Sums()
	must(g, err)
	if _, err := c.Sums(); err == nil {
		g.Error("the sums were given twice")
	}
	return sums
}

// Two copies of the same bytes, so large that they go in pieces.
func TestChecksumsTellBytesAndNotPlaces(t *testing.T) {
	const n = 1<<20 + 13
	g := newGuardBench(t, 4<<20)
	must(t, g.ops.Fill(ctx, g.on.ID(), []deviceops.Region{g.at(0, n), g.at(2<<20, n)}))
	both := []deviceops.Region{g.at(0, n), g.at(2<<20, n)}
	sums := g.sums(both...)
	if sums[0] != sums[1] {
		t.Errorf("equal bytes have the sums %#x", sums)
	}
	intact := sums[0]
	for _, offset := range []uint64{0, 7, 8, 65536, 1 << 19, n - 1} {
		must(t, g.Driver.MemsetAsync(g.block.ID.Ptr+offset, 0xee, 1, g.on.Handle()))
		if sums = g.sums(both...); sums[0] == intact || sums[1] != intact {
			t.Errorf("byte %d changed: sums %#x, before %#x", offset, sums, intact)
		}
		must(t, g.ops.Fill(ctx, g.on.ID(), both[:1]))
	}
	if sums = g.sums(both...); sums[0] != intact {
		t.Errorf("filled again the sum is %#x, was %#x", sums[0], intact)
	}
	shorter := g.sums(g.at(0, n-1), g.at(0, 0), g.at(8, n-8))
	if shorter[0] == intact || shorter[1] != 0 || shorter[2] == intact {
		t.Errorf("sums of parts: %#x", shorter)
	}
}

// Words that trade places sum up to the same, unless each counts with its place.
func TestChecksumsSeeWordsThatTradedPlaces(t *testing.T) {
	g := newGuardBench(t, 64)
	write := func(a, b uint64) uint64 {
		must(t, g.ops.Fill(ctx, g.on.ID(), []deviceops.Region{
			{Ptr: g.block.ID.Ptr, Bytes: 8, Pattern: a}, {Ptr: g.block.ID.Ptr + 8, Bytes: 8, Pattern: b}}))
		return g.sums(g.at(0, 16))[0]
	}
	if write(1, 2) == write(2, 1) {
		t.Error("the sums are equal")
	}
}

func TestDelaysAreEnqueuedInOrderAndBounded(t *testing.T) {
	g := newGuardBench(t, 64)
	began := time.Now()
	for _, d := range []time.Duration{-1, 0, time.Microsecond, time.Hour} {
		must(t, g.ops.Delay(ctx, g.on.ID(), d))
	}
	must(t, g.ops.Synchronize(ctx, g.on.ID()))
	if took := time.Since(began); took > patience { // instead of an hour
		t.Errorf("it took %v", took)
	}
	g.faults.FailMethod(drivertest.Launch, 1, driver.InvalidValue)
	if err := g.ops.Delay(ctx, g.on.ID(), time.Microsecond); !core.WasNotEnqueued(err) {
		t.Errorf("a refused launch: %v", err)
	}
	if err := g.ops.Delay(ctx, 12345, time.Microsecond); !core.WasNotEnqueued(err) {
		t.Errorf("an unknown stream: %v", err)
	}
}

func TestEmptyBatches(t *testing.T) {
	g := newGuardBench(t, 64)
	must(t, g.ops.Fill(ctx, g.on.ID(), nil))
	if bad := g.verify(); len(bad) > 0 {
		t.Errorf("mismatches of nothing: %+v", bad)
	}
	if sums := g.sums(); len(sums) > 0 {
		t.Errorf("sums of nothing: %+v", sums)
	}
}

func TestResultsAreNotThereBeforeTheBatchIsDone(t *testing.T) {
	g := newGuardBench(t, 64)
	must(t, g.ops.Fill(ctx, g.on.ID(), []deviceops.Region{g.at(0, 64)}))
	release := g.hold(g.on)
	v, err := g.ops.Verify(ctx, g.on.ID(), []deviceops.Region{g.at(0, 64)})
	must(t, err)
	if done, err := v.Poll(); done || err != nil {
		t.Errorf("polled: %v, %v", done, err)
	}
	if _, err := v.Mismatches(); err == nil || !strings.Contains(err.Error(), "under way") {
		t.Errorf("results of a batch under way: %v", err)
	}
	bounded, cancel := within(2)
	defer cancel()
	expect.Error(t, v.Wait(bounded), context.DeadlineExceeded, "wait")
	expect.Error(t, g.ops.Synchronize(bounded, g.on.ID()), context.DeadlineExceeded, "synchronize")
	release()
	must(t, v.Wait(ctx))
	_, err = v.Mismatches()
	must(t, err)
}

func TestDiscardedBatchesGiveTheirMemoryBack(t *testing.T) {
	g := newGuardBench(t, 64)
	must(t, g.ops.Fill(ctx, g.on.ID(), []deviceops.Region{g.at(0, 64)}))
	for range 200 {
		v, err := g.ops.Verify(ctx, g.on.ID(), []deviceops.Region{g.at(0, 64)})
		must(t, err)
		v.Discard()
		v.Discard()
		must(t, g.ops.Synchronize(ctx, g.on.ID()))
	}
	if n := g.faults.Calls(drivertest.HostAlloc); n > 4 {
		t.Errorf("%d host allocations for 200 batches, one at a time", n)
	}
}

// Delays and small fills leave no event behind, and their kernels must not be
// unloaded while they wait for their turn.
func TestCloseWaitsForWorkThatLeavesNoEvent(t *testing.T) {
	for name, enqueue := range map[string]func(*guardBench) error{
		"fill":  func(g *guardBench) error { return g.ops.Fill(ctx, g.on.ID(), []deviceops.Region{g.at(0, 64)}) },
		"delay": func(g *guardBench) error { return g.ops.Delay(ctx, g.on.ID(), 1) },
	} {
		for _, released := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " released ", released), func(t *testing.T) {
				g := newGuardBench(t, 64)
				release := g.hold(g.on)
				must(t, enqueue(g))
				if released { // the lease is given back, and the stream is another's next
					must(t, g.on.Release())
				}
				short, cancel := within(5)
				defer cancel()
				expect.Error(t, g.ops.Close(short), context.DeadlineExceeded, "Close")
				equal(t, "modules unloaded", g.faults.Calls(drivertest.ModuleUnload), 0)
				release()
				must(t, g.ops.Close(ctx))
				equal(t, "modules unloaded", g.faults.Calls(drivertest.ModuleUnload), 1)
			})
		}
	}
}

// A launch that is delayed or whose block is filled does not wait for who closes.
func TestWorkIsEnqueuedWhileCloseWaitsForOther(t *testing.T) {
	g := newGuardBench(t, 64)
	other := g.leases(1)[0]
	release := g.hold(g.on)
	must(t, g.ops.Delay(ctx, g.on.ID(), 1))
	long, end := context.WithCancel(ctx)
	closed := make(chan error, 1)
	queries := g.faults.Calls(drivertest.EventQuery)
	go func() { closed <- g.ops.Close(long) }()
	for g.faults.Calls(drivertest.EventQuery) == queries {
		time.Sleep(time.Millisecond)
	}
	enqueued := make(chan error, 1)
	go func() { enqueued <- g.ops.Delay(ctx, other.ID(), 1) }()
	select {
	case err := <-enqueued:
		must(t, err)
	case <-time.After(patience):
		t.Error("a delay waits for the end of Close")
	}
	end()
	expect.Error(t, <-closed, context.Canceled, "Close")
	equal(t, "modules unloaded", g.faults.Calls(drivertest.ModuleUnload), 0)
	release()
	must(t, g.ops.Close(ctx))
}

func TestStagingThatMayBeInUseIsNotReused(t *testing.T) {
	g := newGuardBench(t, 64)
	regions := tabled(g.at(0, 64))
	g.faults.FailMethod(drivertest.EventRecord, 1, driver.InvalidHandle)
	g.faults.FailMethod(drivertest.StreamSynchronize, 1, driver.InvalidHandle)
	if err := g.ops.Fill(ctx, g.on.ID(), regions); err == nil || core.WasNotEnqueued(err) {
		t.Fatalf("the kernel was enqueued and its end is unknown: %v", err)
	}
	must(t, g.ops.Fill(ctx, g.on.ID(), regions))
	equal(t, "host allocations", g.faults.Calls(drivertest.HostAlloc), 2)
}

func TestDeviceOpsSayWhatWasNotEnqueued(t *testing.T) {
	g := newGuardBench(t, 64)
	regions := tabled(g.at(0, 64))
	for _, m := range []drivertest.Method{drivertest.EventCreate, drivertest.HostAlloc, drivertest.Launch} {
		g.faults.FailMethod(m, 1, driver.InvalidValue)
		if err := g.ops.Fill(ctx, g.on.ID(), regions); !core.WasNotEnqueued(err) {
			t.Errorf("%v: %v", m, err)
		}
		g.faults.Clear()
	}
	g.faults.FailMethod(drivertest.Launch, 1, driver.InvalidValue)
	if err := g.ops.Fill(ctx, g.on.ID(), regions[driver.GuardFew:]); !core.WasNotEnqueued(err) {
		t.Errorf("a few regions: %v", err)
	}
	if err := g.ops.Fill(ctx, 12345, regions[driver.GuardFew:]); !core.WasNotEnqueued(err) {
		t.Errorf("a few regions on an unknown stream: %v", err)
	}
	if _, err := g.ops.Verify(ctx, 12345, regions); !core.WasNotEnqueued(err) {
		t.Errorf("an unknown stream: %v", err)
	}
	if _, err := g.ops.Checksum(ctx, 12345, regions); !core.WasNotEnqueued(err) {
		t.Errorf("a checksum on an unknown stream: %v", err)
	}
}

func TestDeviceOpsNeedTheGuardsKernels(t *testing.T) {
	b := newBench(t)
	_, err := cuda.NewDeviceOps(b.Driver, b.Streams, driver.Image{Name: mixImage})
	if !errors.Is(err, core.ErrDriver) || !strings.Contains(err.Error(), "guard's kernels") {
		t.Errorf("got %v", err)
	}
	equal(t, "modules left loaded", b.faults.Calls(drivertest.ModuleLoad)-b.faults.Calls(drivertest.ModuleUnload), 0)
}

// A device that is far behind is not asked about each batch under way for
// every one that follows, and a stalled stream hides nothing of another's.
func TestBatchesUnderWayAreNotAllAskedAbout(t *testing.T) {
	const stalled, more = 500, 300
	g := newGuardBench(t, 4096)
	other := g.leases(1)[0]
	apart := g.alloc(other, 64)
	defer g.free(apart)
	release := g.hold(g.on)
	defer release()
	for range stalled {
		must(t, g.ops.Fill(ctx, g.on.ID(), tabled(g.at(0, 8))))
	}
	made, asked := g.faults.Calls(drivertest.HostAlloc), g.faults.Calls(drivertest.EventQuery)
	equal(t, "memories for batches that stall", made >= stalled, true)
	for range more {
		must(t, g.ops.Fill(ctx, other.ID(), tabled(deviceops.Region{Ptr: apart.ID.Ptr, Bytes: 8, Pattern: pattern})))
		g.sync(other)
	}
	if n := g.faults.Calls(drivertest.HostAlloc) - made; n > 2 {
		t.Errorf("%d memories were made for %d batches that each ended before the next", n, more)
	}
	before := g.faults.Calls(drivertest.EventQuery)
	for range more {
		must(t, g.ops.Fill(ctx, g.on.ID(), tabled(g.at(0, 8))))
	}
	if n := g.faults.Calls(drivertest.EventQuery) - before; n > 2*more {
		t.Errorf("%d more batches asked %d times about the %d before them", more, n, stalled)
	}
	t.Logf("%d questions for %d batches", g.faults.Calls(drivertest.EventQuery)-asked, stalled+2*more)
	release()
	g.sync(g.on)
	made = g.faults.Calls(drivertest.HostAlloc)
	for range more {
		must(t, g.ops.Fill(ctx, g.on.ID(), tabled(g.at(0, 8))))
	}
	equal(t, "memories made while there are idle ones", g.faults.Calls(drivertest.HostAlloc)-made, 0)
}
