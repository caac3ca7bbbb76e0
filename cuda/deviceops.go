package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// DeviceOps fills and verifies device memory for a guard, in batches of one
// kernel launch each. Regions and results travel through page-locked host
// memory that the kernels reach themselves: nothing is copied synchronously.
// It is safe for concurrent use and must be closed.
type DeviceOps struct {
	drv          driver.Driver
	streams      *StreamPool
	module       *Module
	fill, verify *Kernel

	mu       sync.Mutex
	idle     []*staging
	inFlight []*staging
}

var _ core.DeviceOps = (*DeviceOps)(nil)

// NewDeviceOps loads the guard's kernels. It may block.
func NewDeviceOps(drv driver.Driver, streams *StreamPool, image driver.Image) (*DeviceOps, error) {
	module, err := LoadModule(drv, image)
	if err != nil {
		return nil, fmt.Errorf("loading the guard's kernels: %w", err)
	}
	d := &DeviceOps{drv: drv, streams: streams, module: module}
	for name, kernel := range map[string]**Kernel{driver.GuardFillKernel: &d.fill, driver.GuardVerifyKernel: &d.verify} {
		if *kernel, err = module.Kernel(name); err != nil {
			return nil, errors.Join(fmt.Errorf("loading the guard's kernels: %w", err), module.Unload())
		}
	}
	return d, nil
}

// Fill enqueues the filling of all regions as one launch.
func (d *DeviceOps) Fill(_ context.Context, stream core.StreamID, regions []core.Region) error {
	if len(regions) == 0 {
		return nil
	}
	st, err := d.stage(regions, 1)
	if err != nil {
		return core.NotEnqueued(err)
	}
	err = d.enqueue(d.fill, stream, st, driver.Ptr(st.mem.DevicePtr), driver.U32(uint32(st.records)))
	d.park(st)
	return err
}

// Verify enqueues the comparison of all regions as one launch.
func (d *DeviceOps) Verify(_ context.Context, stream core.StreamID, regions []core.Region) (core.Verification, error) {
	st, err := d.stage(regions, 2)
	if err != nil {
		return nil, core.NotEnqueued(err)
	}
	v := &verification{ops: d, staging: st}
	if len(regions) == 0 {
		return v, nil
	}
	if err := d.enqueue(d.verify, stream, st, driver.Ptr(st.mem.DevicePtr), driver.Ptr(st.resultsPtr()), driver.U32(uint32(st.records))); err != nil {
		d.park(st)
		return nil, err
	}
	return v, nil
}

// enqueue launches a kernel over st and records its end in st. If only the
// record fails the stream is synchronised, so that st is known to be unused.
func (d *DeviceOps) enqueue(k *Kernel, stream core.StreamID, st *staging, args ...driver.Arg) error {
	on, err := d.streams.table.enterUncaptured("DeviceOps", stream)
	if err != nil {
		return core.NotEnqueued(err)
	}
	defer on.leave()
	s := on.handle
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

// Close waits for the batches under way until ctx ends, and gives memory,
// events and kernels back. It may block in the driver. After an error it may be
// called again, for what is left.
func (d *DeviceOps) Close(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	var kept []*staging
	for _, st := range append(d.idle, d.inFlight...) {
		if err := st.close(ctx, d.drv); err != nil {
			errs, kept = append(errs, err), append(kept, st)
		}
	}
	d.idle, d.inFlight = nil, kept
	if len(errs) == 0 && d.module != nil {
		if err := d.module.Unload(); err != nil {
			return err
		}
		d.module = nil
	}
	return errors.Join(errs...)
}

// verification is a batch under way; its results lie behind the regions in
// the staging memory.
type verification struct {
	ops *DeviceOps

	mu      sync.Mutex
	staging *staging
}

// Poll reports whether the device has done the batch.
func (v *verification) Poll() (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.staging == nil || v.staging.records == 0 {
		return true, nil
	}
	return v.ops.drv.EventQuery(v.staging.event)
}

// Wait blocks until the device has done the batch, or ctx ends.
func (v *verification) Wait(ctx context.Context) error { return poll(ctx, v.Poll) }

// Mismatches reads the results and gives the memory back.
func (v *verification) Mismatches() ([]core.Mismatch, error) {
	done, err := v.Poll()
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.staging == nil {
		return nil, errors.New("the results were taken before: Mismatches is called once")
	}
	if !done {
		return nil, errors.New("the batch is still under way: Poll or Wait first")
	}
	bad := joinPieces(v.staging.table(), v.staging.results())
	v.ops.park(v.staging)
	v.staging = nil
	return bad, nil
}

// Discard gives the memory back once the device is done with it.
func (v *verification) Discard() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.staging != nil {
		v.ops.park(v.staging)
		v.staging = nil
	}
}
