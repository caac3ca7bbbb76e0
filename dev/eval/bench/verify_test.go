package bench

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// inFlight is how many batches follow each other without a gap, as they do
// when quarantine turns over under load.
const inFlight = 8

// yardstick compares what a guard's comparison reads in a second with what a
// kernel does that only reads.
type yardstick struct {
	testing.TB
	drv     driver.Driver
	ops     deviceops.Device
	on      *cuda.Lease
	module  *cuda.Module
	reader  *cuda.Kernel
	regions []deviceops.Region
	ptr     uint64
	bytes   uint64
	// hold makes the stream wait until the function that it returns is called,
	// so that the device's time is measured and not the host's.
	hold func() (release func())
	// Gigabytes a second, one for each round: comparisons one behind the other
	// on the device, the yardstick the same, and a comparison alone, with the
	// host's work before and after it.
	verified, read, alone []float64
}

// zone is the bytes of a red zone as the guard lays them out.
const zone = 256

// newYardstick fills blocks that make up total bytes, between red zones.
func newYardstick(tb testing.TB, drv driver.Driver, total, block uint64) *yardstick {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	s := openOver(tb, drv)
	y := &yardstick{TB: tb, drv: drv, on: s.lease(tb), hold: func() func() { return func() {} }}
	var err error
	y.ops, err = cuda.NewDeviceOps(drv, s.streams, guardkernels.Image())
	must(err)
	tb.Cleanup(func() { must(y.ops.Close(context.Background())) })
	y.module, err = cuda.LoadModule(drv, testkernels.Image())
	must(err)
	tb.Cleanup(func() { must(y.module.Unload()) })
	y.reader, err = y.module.Kernel(testkernels.ReadAll)
	must(err)
	each := block + 2*zone
	b, err := s.runtime.Allocate(context.Background(), core.Request{Bytes: total/block*each + 256, Stream: y.on.ID(), Tag: "yardstick"})
	must(err)
	tb.Cleanup(func() { _, err := s.runtime.Deallocate(context.Background(), b.ID); must(err) })
	y.ptr, y.bytes = b.ID.Ptr, total/block*each
	for i := range total / block {
		at := b.ID.Ptr + i*each
		y.regions = append(y.regions, deviceops.Region{Ptr: at, Bytes: zone, Pattern: i},
			deviceops.Region{Ptr: at + zone + block, Bytes: zone, Pattern: ^i}, deviceops.Region{Ptr: at + zone, Bytes: block, Pattern: 3*i + 1})
	}
	must(y.ops.Fill(context.Background(), y.on.ID(), y.regions))
	y.compare(inFlight) // page-locked memory is made here, and not while the clock runs
	return y
}

// round measures each once.
func (y *yardstick) round() {
	y.verified = append(y.verified, y.compare(inFlight))
	best := 0.0
	for _, blocks := range []int{528, 1056, 2112} {
		best = max(best, y.readAll(blocks, inFlight))
	}
	y.read = append(y.read, best)
	began := time.Now()
	y.compare(1)
	y.alone = append(y.alone, y.speed(1, began))
}

// speed is in gigabytes a second.
func (y *yardstick) speed(times int, began time.Time) float64 {
	return float64(times) * float64(y.bytes) / float64(time.Since(began).Nanoseconds())
}

// compare queues n comparisons, lets them go, and reads the verdicts when the
// clock has stopped.
func (y *yardstick) compare(n int) float64 {
	release := y.hold()
	var under []deviceops.Verification
	for range n {
		v, err := y.ops.Verify(context.Background(), y.on.ID(), y.regions)
		if err != nil {
			y.Fatal(err)
		}
		under = append(under, v)
	}
	speed := y.timed(n, release)
	for _, v := range under {
		if bad, err := v.Mismatches(); err != nil || len(bad) > 0 {
			y.Fatalf("%d mismatches, the first %+v, %v", len(bad), bad[:min(1, len(bad))], err)
		}
	}
	return speed
}

func (y *yardstick) readAll(blocks, n int) float64 {
	release := y.hold()
	sum := y.ptr + y.bytes
	for range n {
		err := y.reader.Enqueue(y.on.Handle(), cuda.Blocks1D(blocks*512, 512), driver.Ptr(y.ptr), driver.U64(y.bytes/8), driver.Ptr(sum))
		if err != nil {
			y.Fatal(err)
		}
	}
	return y.timed(n, release)
}

// timed lets the device go and waits until it has done what was queued.
func (y *yardstick) timed(n int, release func()) float64 {
	began := time.Now()
	release()
	if err := y.drv.StreamSynchronize(y.on.Handle()); err != nil {
		y.Fatal(err)
	}
	return y.speed(n, began)
}

func (*yardstick) median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

func TestTheYardstickOfComparisonsRuns(t *testing.T) {
	d, err := sim.Open(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := testkernels.Register(d); err != nil {
		t.Fatal(err)
	}
	y := newYardstick(t, d, 1<<20, 64<<10)
	y.round()
	for _, of := range [][]float64{y.verified, y.read, y.alone} {
		if len(of) != 1 || y.median(of) <= 0 {
			t.Errorf("measured %v", of)
		}
	}
	if found := d.Findings(); len(found) > 0 {
		t.Errorf("findings: %v", found)
	}
}
