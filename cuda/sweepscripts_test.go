package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

var sweepScripts = []struct {
	name string
	run  func(*sweep) error
}{
	{"allocations and frees", sweepAllocations},
	{"launches over streams", sweepLaunches},
	{"launches that are timed", sweepTimed},
	{"recorder and recorded uses", sweepRecorder},
	{"copies, slices and columns", sweepCopies},
	{"adopted streams", sweepAdopted},
	{"device operations of a guard", sweepDeviceOps},
	{"direct and untracked memory", sweepDirect},
	{"stream and memory pools", sweepPools},
	{"copies between devices", sweepPeers},
	{"page-locked buffers", sweepHostBuffers},
	{"graphs and captures", sweepGraphs},
	{"mapped memory", sweepMapped},
	{"isolated blocks", sweepIsolated},
	{"calls of the service itself", sweepDriver},
}

// sweepAllocations makes enough allocations and frees for the reaper to look.
func sweepAllocations(x *sweep) error {
	s, err := x.leases(2)
	if err != nil {
		return err
	}
	for i := range 24 {
		b, err := x.alloc(s[i%2])
		if err != nil {
			return err
		}
		if err := x.free(b); err != nil {
			return err
		}
	}
	return x.rt.ReapPending(ctx)
}

func sweepLaunches(x *sweep) error {
	s, err := x.leases(3)
	if err != nil {
		return err
	}
	a, err := x.alloc(s[0])
	if err != nil {
		return err
	}
	b, err := x.alloc(s[1])
	if err != nil {
		return err
	}
	return errors.Join(
		x.launch(s[0], writes(a)), x.launch(s[1], writes(b)),
		x.launch(s[1], reads(a), readWrites(b)), x.launch(s[2], reads(a, b)),
		x.launch(s[0], readWrites(a), reads(b)), x.free(b), x.launch(s[2], readWrites(a)))
}

// sweepTimed times launches. No failure of what times a launch is one of the launch, so it fails at the end for the call that failed
// there.
func sweepTimed(x *sweep) error {
	s, err := x.leases(2)
	if err != nil {
		return err
	}
	b, err := x.alloc(s[0])
	if err != nil {
		return err
	}
	for i := range 4 {
		t, err := x.rt.Resource().PrepareUse(ctx, sampled(core.UseRequest{Stream: s[i%2].ID(), Launch: "timed", Uses: []core.Use{{Block: b.ID, Access: core.ReadWrite}}}))
		if err != nil {
			return err
		}
		x.timed++
		if err := x.rt.Resource().FinishUse(ctx, t); err != nil {
			return err
		}
	}
	if err := x.rt.Drain(ctx); err != nil {
		return err
	}
	return x.rt.ReapPending(ctx)
}

func sweepRecorder(x *sweep) error {
	s, err := x.leases(2)
	if err != nil {
		return err
	}
	b, err := x.alloc(s[0])
	if err != nil {
		return err
	}
	rec := core.NewStrictRecorder(s[1].ID())
	if err := rec.Write(b); err != nil {
		return err
	}
	if err := rec.Preflight(ctx, x.rt); err != nil {
		return errors.Join(err, rec.Abort(ctx, x.rt))
	}
	if err := x.kernel.Enqueue(s[1].Handle(), grid, mixArgs(1, writes(b))...); err != nil {
		return errors.Join(err, rec.Abort(ctx, x.rt))
	}
	if err := rec.Commit(ctx, x.rt); err != nil {
		return err
	}
	if err := x.streams.Synchronize(ctx, s[1].ID()); err != nil {
		return err
	}
	if err := x.kernel.Enqueue(s[0].Handle(), grid, mixArgs(1, reads(b))...); err != nil {
		return err
	}
	return x.rt.RecordBlockUse(ctx, b.ID, s[0].ID())
}

func sweepCopies(x *sweep) error {
	s, err := x.leases(2)
	if err != nil {
		return err
	}
	src, err := cuda.Alloc[uint32](ctx, x.memory, 64, cuda.AllocOptions{Stream: s[0].ID()})
	if err != nil {
		return err
	}
	x.later(freeOnce(src))
	dst, err := cuda.Alloc[uint32](ctx, x.memory, 64, cuda.AllocOptions{Stream: s[1].ID()})
	if err != nil {
		return err
	}
	x.later(freeOnce(dst))
	view, err := dst.View(0, 32)
	if err != nil {
		return err
	}
	x.later(freeOnce(view))
	want := make([]uint32, 64)
	for i := range want {
		want[i] = uint32(i)
	}
	if err := errors.Join(cuda.CopyToDevice(ctx, src, s[0].ID(), want), cuda.CopyOnDevice(ctx, dst, src, s[1].ID()),
		cuda.Memset(ctx, view, s[0].ID(), 0xff)); err != nil {
		return err
	}
	got, err := cuda.Download(ctx, dst, s[1].ID())
	for i := range 32 {
		want[i] = 0xffffffff
	}
	if err == nil && !slices.Equal(got, want) {
		x.Errorf("downloaded %v", got)
	}
	if column := cuda.OwnedColumn(dst); column.Ptr() != dst.Ptr() {
		x.Errorf("the column lies elsewhere")
	}
	return err
}

func freeOnce[T cuda.Element](s *cuda.Slice[T]) func() error {
	return func() error {
		if err := s.Free(ctx); !errors.Is(err, core.ErrUseAfterFree) {
			return err
		}
		return nil
	}
}

func sweepAdopted(x *sweep) error {
	s, err := x.lease()
	if err != nil {
		return err
	}
	handle, err := x.sim.StreamCreate() // the caller's stream, not the pool's
	if err != nil {
		return err
	}
	x.later(func() error { return x.sim.StreamDestroy(handle) })
	adopted, err := x.streams.Adopt(handle, "sweep")
	if err != nil {
		return err
	}
	x.later(func() error {
		if err := adopted.Release(); !errors.Is(err, core.ErrStreamMisuse) {
			return err
		}
		return nil // given up below
	})
	a, errA := x.alloc(adopted)
	b, errB := x.alloc(adopted)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if err := errors.Join(x.launch(adopted, writes(a, b)), x.launch(s, reads(a)), x.free(b)); err != nil {
		return err
	}
	if err := adopted.Release(); err != nil {
		return err
	}
	return errors.Join(x.rt.ReapPending(ctx), x.free(a), x.rt.ReapPending(ctx))
}

func sweepDeviceOps(x *sweep) error {
	ops, err := cuda.NewDeviceOps(x.faults, x.streams, guardkernels.Image())
	if err != nil {
		return err
	}
	x.later(func() error { return ops.Close(ctx) })
	s, err := x.lease()
	if err != nil {
		return err
	}
	b, err := x.alloc(s)
	if err != nil {
		return err
	}
	regions := []deviceops.Region{{Ptr: b.ID.Ptr, Bytes: 100, Pattern: 0x1122334455667788}, {Ptr: b.ID.Ptr + 101, Bytes: 33, Pattern: 7}}
	for _, some := range [][]deviceops.Region{regions, append(make([]deviceops.Region, driver.GuardFew), regions...)} {
		if err := x.rt.Launch(ctx, s.ID(), declared(writes(b)), func(ctx context.Context) error {
			return ops.Fill(ctx, s.ID(), some)
		}); err != nil {
			return err
		}
	}
	for _, discard := range []bool{false, true} {
		if err := x.verify(ops, s, b, regions, discard); err != nil {
			return err
		}
		if err := x.sum(ops, s, b, regions, discard); err != nil {
			return err
		}
	}
	if err := ops.Delay(ctx, s.ID(), time.Microsecond); err != nil {
		return err
	}
	return ops.Synchronize(ctx, s.ID())
}

func (x *sweep) verify(ops deviceops.Device, s *cuda.Lease, b core.Block, regions []deviceops.Region, discard bool) error {
	var v deviceops.Verification
	err := x.rt.Launch(ctx, s.ID(), declared(reads(b)), func(ctx context.Context) (err error) {
		v, err = ops.Verify(ctx, s.ID(), regions)
		return err
	})
	if v != nil {
		x.later(func() error { v.Discard(); return nil })
	}
	if err != nil || discard {
		return err
	}
	if err := v.Wait(ctx); err != nil {
		return err
	}
	bad, err := v.Mismatches()
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("mismatches: %+v", bad)
	}
	return err
}

func (x *sweep) sum(ops deviceops.Device, s *cuda.Lease, b core.Block, regions []deviceops.Region, discard bool) error {
	var c deviceops.Checksums
	err := x.rt.Launch(ctx, s.ID(), declared(reads(b)), func(ctx context.Context) (err error) {
		c, err = ops.Checksum(ctx, s.ID(), regions)
		return err
	})
	if c != nil {
		x.later(func() error { c.Discard(); return nil })
	}
	if err != nil || discard {
		return err
	}
	if err := c.Wait(ctx); err != nil {
		return err
	}
	sums, err := c.Sums()
	if err == nil && (len(sums) != 2 || sums[0] == sums[1]) {
		err = fmt.Errorf("sums: %#x", sums)
	}
	return err
}

func sweepDirect(x *sweep) error {
	direct := cuda.NewDirectResource(x.faults)
	b, err := direct.Allocate(ctx, core.Request{Bytes: 100})
	if err != nil {
		return err
	}
	x.later(func() error {
		_, err := direct.Deallocate(ctx, b.ID)
		return err
	})
	untracked := cuda.NewUntrackedManager(x.faults, x.streams, 1000)
	slice, err := cuda.Alloc[byte](ctx, untracked, 1000, cuda.AllocOptions{})
	if err != nil {
		return err
	}
	x.later(freeOnce(slice))
	if err := cuda.Memset(ctx, slice, core.DefaultStream, 3); err != nil {
		return err
	}
	got, err := cuda.Download(ctx, slice, core.DefaultStream)
	if err == nil && (got[0] != 3 || got[999] != 3) {
		x.Errorf("downloaded %v", got)
	}
	return err
}

func sweepPools(x *sweep) error {
	for range 2 {
		first, err := x.streams.Acquire(ctx, "sweep")
		if err != nil {
			return err
		}
		second, err := x.streams.Acquire(ctx, "sweep")
		if err == nil {
			err = second.Release()
		}
		if err := errors.Join(err, first.Release()); err != nil {
			return err
		}
	}
	if err := x.async.TrimPool(0); err != nil {
		return err
	}
	pool, err := x.async.PoolStats()
	if err == nil && pool.Used != 0 {
		x.Errorf("%d bytes of the pool are in use", pool.Used)
	}
	return err
}

// sweepMapped maps memory by hand.
func sweepMapped(x *sweep) error {
	const size = sim.Granule
	ptr, err := x.faults.MemReserve(size)
	if err != nil {
		return err
	}
	x.later(func() error { return x.faults.MemUnreserve(ptr, size) })
	h, err := x.faults.MemCreate(size)
	if err != nil {
		return err
	}
	x.later(func() error { return x.faults.MemRelease(h) })
	if err := x.faults.MemMap(ptr, size, h); err != nil {
		return err
	}
	x.later(func() error { return x.faults.MemUnmap(ptr, size) })
	return x.faults.MemAccess(ptr, size)
}

// sweepIsolated frees more isolated blocks than addresses are kept, one of them
// behind uses on two streams, and then needs what the pool holds.
func sweepIsolated(x *sweep) error {
	s, err := x.leases(2)
	if err != nil {
		return err
	}
	shared, err := x.isolate(s[0])
	if err != nil {
		return err
	}
	if err := errors.Join(x.launch(s[0], writes(shared)), x.launch(s[1], readWrites(shared)), x.free(shared), x.rt.ReapPending(ctx)); err != nil {
		return err
	}
	for i := range 4 {
		b, err := x.isolate(s[i%2])
		if err != nil {
			return err
		}
		if err := errors.Join(x.free(b), x.rt.Drain(ctx)); err != nil {
			return err
		}
	}
	big, err := x.rt.Allocate(ctx, core.Request{Bytes: 60 << 20, Stream: s[0].ID()})
	if err != nil {
		return err
	}
	x.later(func() error { return x.free(big) })
	if err := errors.Join(x.free(big), x.rt.Drain(ctx)); err != nil {
		return err
	}
	last, err := x.rt.Allocate(ctx, core.Request{Bytes: 40 << 20, Stream: s[1].ID(), Isolated: true}) // trims the pool
	if err == nil {
		x.later(func() error { return x.free(last) })
	}
	return err
}

func (x *sweep) isolate(on *cuda.Lease) (core.Block, error) {
	b, err := x.rt.Allocate(ctx, core.Request{Bytes: 256, Stream: on.ID(), Tag: "sweep", Isolated: true})
	if err == nil {
		x.later(func() error { return x.free(b) })
	}
	return b, err
}

// sweepDriver makes the calls that a service makes itself.
func sweepDriver(x *sweep) error {
	if _, _, err := x.faults.MemInfo(); err != nil {
		return err
	}
	_, err := x.faults.StreamQuery(0)
	return errors.Join(err, x.faults.PoolTrim(0, 0), x.faults.Synchronize())
}

// sweepGraphs captures, launches over two streams, and frees and finishes while
// streams capture.
func sweepGraphs(x *sweep) error {
	s, err := x.leases(2)
	if err != nil {
		return err
	}
	a, err := x.alloc(s[0])
	if err != nil {
		return err
	}
	own, err := x.alloc(s[0])
	if err != nil {
		return err
	}
	g, err := s[0].Capture(ctx, "sweep", declared(writes(a)), func(h driver.Stream) error {
		return errors.Join(x.kernel.Enqueue(h, grid, mixArgs(1, writes(a))...), x.free(own), x.rt.ReapPending(ctx))
	}, s[1])
	if err != nil {
		return err
	}
	x.later(g.Close)
	if err := errors.Join(g.Launch(ctx, x.rt, s[1]), x.launch(s[0], reads(a)), g.Launch(ctx, x.rt, s[0]), x.launch(s[1], readWrites(a))); err != nil {
		return err
	}
	if _, err := s[0].Capture(ctx, "sweep", nil, func(driver.Stream) error { return errNoWork }); !errors.Is(err, errNoWork) {
		return err
	}
	return x.captureBehind(s[1])
}

var errNoWork = errors.New("nothing is captured")

// captureBehind captures an adopted stream behind the runtime's back, between
// the halves of a launch.
func (x *sweep) captureBehind(other *cuda.Lease) error {
	handle, err := x.sim.StreamCreate()
	if err != nil {
		return err
	}
	x.later(func() error { return x.sim.StreamDestroy(handle) })
	adopted, err := x.streams.Adopt(handle, "sweep")
	if err != nil {
		return err
	}
	x.later(func() error {
		if err := x.rt.ReapPending(ctx); err != nil { // fences what finished in the capture
			return err
		}
		return adopted.Release()
	})
	b, err := x.alloc(adopted)
	if err != nil {
		return err
	}
	t, err := x.rt.PrepareBlockUse(ctx, b.ID, adopted.ID(), core.Write)
	if err != nil {
		return err
	}
	if err := x.kernel.Enqueue(handle, grid, mixArgs(1, writes(b))...); err != nil {
		return errors.Join(err, x.rt.AbortUse(ctx, t))
	}
	if err := x.sim.StreamBeginCapture(handle); err != nil {
		return errors.Join(err, x.rt.FinishUse(ctx, t))
	}
	finishErr := x.rt.FinishUse(ctx, t)
	freeErr := x.free(b)
	exec, err := x.sim.StreamEndCapture(handle)
	if err != nil { // something of the runtime's was recorded
		return err
	}
	if err := x.sim.GraphDestroy(exec); err != nil {
		return err
	}
	if errors.Is(finishErr, core.ErrStreamMisuse) {
		finishErr = nil
	}
	return errors.Join(finishErr, freeErr, x.rt.ReapPending(ctx), x.launch(other))
}
