package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/internal/batch"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// deviceOps fills, verifies and sums up device memory for a guard, in batches of
// one kernel launch each. Regions and results travel through page-locked host
// memory that the kernels reach themselves: nothing is copied synchronously.
// It is safe for concurrent use and must be closed.
type deviceOps struct {
	drv     driver.Driver
	streams *StreamPool
	module  *Module

	fill, fillFew, verify, checksum, delay *Kernel

	hostMemory *batch.Memory
	// unrecorded is where delays and fills by arguments went.
	unrecorded unrecorded
	closing    sync.Mutex
}

var _ deviceops.Device = (*deviceOps)(nil)

// NewDeviceOps returns what fills, verifies and sums up memory of drv's device for a
// guard, by the guard's kernels, which it loads from image. It may block.
func NewDeviceOps(drv driver.Driver, streams *StreamPool, image driver.Image) (deviceops.Device, error) {
	if err := needDevice("NewDeviceOps", drv, streams); err != nil {
		return nil, err
	}
	module, err := LoadModule(drv, image)
	if err != nil {
		return nil, fmt.Errorf("loading the guard's kernels: %w", err)
	}
	d := &deviceOps{drv: drv, streams: streams, module: module, hostMemory: batch.NewMemory(drv)}
	for name, kernel := range map[string]**Kernel{
		driver.GuardFillKernel: &d.fill, driver.GuardFillFewKernel: &d.fillFew, driver.GuardVerifyKernel: &d.verify,
		driver.GuardChecksumKernel: &d.checksum, driver.GuardDelayKernel: &d.delay,
	} {
		if *kernel, err = module.Kernel(name); err != nil {
			return nil, errors.Join(fmt.Errorf("loading the guard's kernels: %w", err), module.Unload())
		}
	}
	return d, nil
}

// Fill enqueues the filling of all regions as one launch. At most [driver.GuardFew] of
// them travel as its arguments, which takes neither memory nor an event.
func (d *deviceOps) Fill(_ context.Context, stream core.StreamID, regions []deviceops.Region) error {
	switch {
	case len(regions) == 0:
		return nil
	case len(regions) <= driver.GuardFew:
		on, err := d.streams.table.enterUncaptured("DeviceOps", stream)
		if err != nil {
			return core.NotEnqueued(err)
		}
		defer on.Leave()
		d.unrecorded.note(on)
		return refusedUnlessSticky(batch.FillFew(d.drv, d.fillFew.function, on.Handle(), regions))
	}
	t, err := d.hostMemory.Stage(stream, regions, batch.Patterns, false)
	if err != nil {
		return core.NotEnqueued(err)
	}
	defer d.hostMemory.Release(t)
	return d.enqueue(d.fill, stream, t, driver.Ptr(t.Ptr()), driver.U32(uint32(t.Records())))
}

// Verify enqueues the comparison of all regions as one launch.
func (d *deviceOps) Verify(_ context.Context, stream core.StreamID, regions []deviceops.Region) (deviceops.Verification, error) {
	r, err := d.enqueueWithResults(d.verify, stream, regions, batch.Patterns)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Checksum enqueues the summing up of all regions as one launch.
func (d *deviceOps) Checksum(_ context.Context, stream core.StreamID, regions []deviceops.Region) (deviceops.Checksums, error) {
	r, err := d.enqueueWithResults(d.checksum, stream, regions, batch.Offsets)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// enqueueWithResults enqueues a kernel that has results for regions.
func (d *deviceOps) enqueueWithResults(k *Kernel, stream core.StreamID, regions []deviceops.Region, content batch.Content) (*batch.Results, error) {
	t, err := d.hostMemory.Stage(stream, regions, content, true)
	if err != nil {
		return nil, core.NotEnqueued(err)
	}
	if len(regions) > 0 {
		if err := d.enqueue(k, stream, t, driver.Ptr(t.Ptr()), driver.Ptr(t.ResultsPtr()), driver.U32(uint32(t.Records()))); err != nil {
			d.hostMemory.Release(t)
			return nil, err
		}
	}
	return batch.NewResults(d.hostMemory, t, len(regions)), nil
}

// Delay enqueues a kernel that does nothing for so long, at most
// [driver.GuardLongestDelay].
func (d *deviceOps) Delay(_ context.Context, stream core.StreamID, length time.Duration) error {
	on, err := d.streams.table.enterUncaptured("DeviceOps", stream)
	if err != nil {
		return core.NotEnqueued(err)
	}
	defer on.Leave()
	length = min(max(length, 0), driver.GuardLongestDelay)
	d.unrecorded.note(on)
	return refusedUnlessSticky(d.delay.Enqueue(on.Handle(), Blocks1D(1, 1), driver.U64(uint64(length))))
}

// enqueue launches a kernel over the table and records the table's end.
func (d *deviceOps) enqueue(k *Kernel, stream core.StreamID, t *batch.Table, args ...driver.Arg) error {
	on, err := d.streams.table.enterUncaptured("DeviceOps", stream)
	if err != nil {
		return core.NotEnqueued(err)
	}
	defer on.Leave()
	if err := k.Enqueue(on.Handle(), guardGrid(t.Records()), args...); err != nil {
		return refusedUnlessSticky(err)
	}
	return d.hostMemory.End(t, on.Handle())
}

// guardGrid has threads for each record, up to what fills any device: the
// kernels' warps then take several records one after the other.
func guardGrid(records int) Grid {
	const block, maxBlocks = 256, 1024
	return Blocks1D(min(records*driver.GuardThreads, maxBlocks*block), block)
}

// Synchronize blocks until all work enqueued on stream so far is done or ctx
// ends. It asks an event and not the stream, which may capture meanwhile.
func (d *deviceOps) Synchronize(ctx context.Context, stream core.StreamID) error {
	return d.streams.Synchronize(ctx, stream)
}

// Close waits for what was enqueued, until ctx ends, and gives memory, events and
// kernels back. Behind delays, and what was filled by arguments, it waits for all
// that their streams were given until now. It may block in the driver. After an
// error it may be called again, for what is left; a stream that captures is one.
func (d *deviceOps) Close(ctx context.Context) error {
	d.closing.Lock()
	defer d.closing.Unlock()
	err := d.hostMemory.Close(ctx)
	// Of a lost device the code is gone with the context.
	if waited := d.unrecorded.wait(ctx); waited != nil && !errors.Is(waited, core.ErrSticky) {
		err = errors.Join(err, waited)
	}
	if err == nil && d.module != nil {
		if err := d.module.Unload(); err != nil {
			return err
		}
		d.module = nil
	}
	return err
}

// unrecorded are the streams on which work was enqueued that no event of its own
// stands behind, for the end of who enqueued it.
type unrecorded struct {
	mu      sync.Mutex
	streams map[*stream]struct{}
}

func (u *unrecorded) note(s *stream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.streams == nil {
		u.streams = map[*stream]struct{}{}
	}
	u.streams[s] = struct{}{}
}

// wait waits until the device has done all of it, or ctx ends. What is enqueued
// meanwhile does not wait, and is left to the next call. It returns the first
// error.
func (u *unrecorded) wait(ctx context.Context) error {
	u.mu.Lock()
	streams := u.streams
	u.streams = nil
	u.mu.Unlock()
	var first error
	for s := range streams {
		if err := s.waitCompleted(ctx); err != nil {
			first = cmp.Or(first, err)
			u.note(s)
		}
	}
	return first
}

// waitCompleted waits until the device has done what is enqueued now, or ctx ends. A
// stream that was given up is not named again: its final point is behind it all.
func (s *stream) waitCompleted(ctx context.Context) error {
	e, err := s.finalOrHere()
	if err != nil {
		return err
	}
	defer e.Release()
	return deadline.Poll(ctx, func() (bool, error) { return s.QueryCompleted(e) })
}

func (s *stream) finalOrHere() (*fence.Point, error) {
	s.Lock()
	defer s.Unlock()
	if s.IsGivenUp() {
		return s.RetainFinal(), nil
	}
	if err := s.RefuseCaptured("Close", core.DefaultStream); err != nil {
		return nil, err
	}
	return s.Record(core.DefaultStream)
}
