package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// DeviceOps fills, verifies and sums up device memory for a guard, in batches of
// one kernel launch each. Regions and results travel through page-locked host
// memory that the kernels reach themselves: nothing is copied synchronously.
// It is safe for concurrent use and must be closed.
type DeviceOps struct {
	drv     driver.Driver
	streams *StreamPool
	module  *Module

	fill, fillFew, verify, checksum, delay *Kernel

	memory stagings
	// unmarked is where delays and fills by arguments went.
	unmarked unmarked
	closing  sync.Mutex
}

var _ core.DeviceOps = (*DeviceOps)(nil)

// NewDeviceOps loads the guard's kernels. It may block.
func NewDeviceOps(drv driver.Driver, streams *StreamPool, image driver.Image) (*DeviceOps, error) {
	if err := needDevice("NewDeviceOps", drv, streams); err != nil {
		return nil, err
	}
	module, err := LoadModule(drv, image)
	if err != nil {
		return nil, fmt.Errorf("loading the guard's kernels: %w", err)
	}
	d := &DeviceOps{drv: drv, streams: streams, module: module}
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

// Fill enqueues the filling of all regions as one launch. A few of them travel
// as its arguments, which takes neither memory nor an event.
func (d *DeviceOps) Fill(_ context.Context, stream core.StreamID, regions []core.Region) error {
	if len(regions) == 0 {
		return nil
	}
	if len(regions) <= driver.GuardFew {
		return d.fillArguments(stream, regions)
	}
	st, err := d.stage(stream, regions, 1, patterns)
	if err != nil {
		return core.NotEnqueued(err)
	}
	err = d.enqueue(d.fill, stream, st, driver.Ptr(st.mem.DevicePtr), driver.U32(uint32(st.records)))
	d.memory.park(st)
	return err
}

// Verify enqueues the comparison of all regions as one launch.
func (d *DeviceOps) Verify(_ context.Context, stream core.StreamID, regions []core.Region) (core.Verification, error) {
	b, err := d.enqueueWithResults(d.verify, stream, regions, patterns)
	if err != nil {
		return nil, err
	}
	return verification{b}, nil
}

// Checksum enqueues the summing up of all regions as one launch.
func (d *DeviceOps) Checksum(_ context.Context, stream core.StreamID, regions []core.Region) (core.Checksums, error) {
	b, err := d.enqueueWithResults(d.checksum, stream, regions, offsets)
	if err != nil {
		return nil, err
	}
	return checksums{b, len(regions)}, nil
}

// enqueueWithResults enqueues a kernel that has results for regions.
func (d *DeviceOps) enqueueWithResults(k *Kernel, stream core.StreamID, regions []core.Region, content recordContent) (*resultBatch, error) {
	st, err := d.stage(stream, regions, 2, content)
	if err != nil {
		return nil, core.NotEnqueued(err)
	}
	b := &resultBatch{ops: d, staging: st}
	presetResults(st.results())
	if len(regions) == 0 {
		return b, nil
	}
	if err := d.enqueue(k, stream, st, driver.Ptr(st.mem.DevicePtr), driver.Ptr(st.resultsPtr()), driver.U32(uint32(st.records))); err != nil {
		d.memory.park(st)
		return nil, err
	}
	return b, nil
}

// Delay enqueues a kernel that does nothing for so long, at most
// [driver.GuardLongestDelay].
func (d *DeviceOps) Delay(_ context.Context, stream core.StreamID, length time.Duration) error {
	on, err := d.streams.table.enterUncaptured("DeviceOps", stream)
	if err != nil {
		return core.NotEnqueued(err)
	}
	defer on.Leave()
	length = min(max(length, 0), driver.GuardLongestDelay)
	d.unmarked.note(on)
	return refusedUnlessSticky(d.delay.Enqueue(on.Handle(), Blocks1D(1, 1), driver.U64(uint64(length))))
}

// enqueue launches a kernel over st and records its end in st. If only the
// record fails the stream is synchronised, so that st is known to be unused.
func (d *DeviceOps) enqueue(k *Kernel, stream core.StreamID, st *staging, args ...driver.Arg) error {
	on, err := d.streams.table.enterUncaptured("DeviceOps", stream)
	if err != nil {
		return core.NotEnqueued(err)
	}
	defer on.Leave()
	s := on.Handle()
	if err := k.Enqueue(s, guardGrid(st.records), args...); err != nil {
		return refusedUnlessSticky(err)
	}
	err = d.drv.EventRecord(st.event, s)
	if err == nil {
		return nil
	}
	if syncErr := d.drv.StreamSynchronize(s); syncErr != nil {
		st.lost = true
		return errors.Join(err, syncErr)
	}
	return err
}

// guardGrid has threads for each record, up to what fills any device: the
// kernels' warps then take several records one after the other.
func guardGrid(records int) Grid {
	const block, maxBlocks = 256, 1024
	return Blocks1D(min(records*driver.GuardThreads, maxBlocks*block), block)
}

// Synchronize blocks until all work enqueued on stream so far is done or ctx
// ends. It asks an event and not the stream, which may capture meanwhile.
func (d *DeviceOps) Synchronize(ctx context.Context, stream core.StreamID) error {
	return d.streams.Synchronize(ctx, stream)
}

// Close waits for what was enqueued, until ctx ends, and gives memory, events and
// kernels back. Behind delays, and what was filled by arguments, it waits for all
// that their streams were given until now. It may block in the driver. After an
// error it may be called again, for what is left; a stream that captures is one.
func (d *DeviceOps) Close(ctx context.Context) error {
	d.closing.Lock()
	defer d.closing.Unlock()
	var errs []error
	for _, st := range d.memory.takeAll() {
		if err := st.close(ctx, d.drv); err != nil {
			errs = append(errs, err)
			d.memory.park(st)
		}
	}
	// Of a lost device the code is gone with the context.
	if err := d.unmarked.wait(ctx); err != nil && !errors.Is(err, core.ErrSticky) {
		errs = append(errs, err)
	}
	if len(errs) == 0 && d.module != nil {
		if err := d.module.Unload(); err != nil {
			return err
		}
		d.module = nil
	}
	return errors.Join(errs...)
}
