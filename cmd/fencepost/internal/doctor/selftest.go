package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// The self-test's block has 1 MiB, and each of its bytes is the pattern.
const (
	words   = 1 << 18
	pattern = 0x5a
)

// Test opens a runtime as cfg says and uses it once, with every block between
// red zones, so that the built-in kernels run too.
func Test(ctx context.Context, cfg fencepost.Config) (t SelfTest) {
	began := time.Now()
	defer func() { t.Milliseconds = float64(time.Since(began).Microseconds()) / 1000 }()
	t.Step = "open"
	rt, err := fencepost.Open(ctx, cfg)
	if err != nil {
		t.Error = err.Error()
		return t
	}
	choice := rt.DeviceChoice()
	t.Device, t.Stack, t.Budget = &choice, rt.String(), rt.Stats().Limit
	t.Limits = rt.MemoryLimits()
	t.KernelLog = rt.GuardStatus().KernelLog
	err = t.use(ctx, rt)
	if err == nil {
		t.Step = "close"
	}
	left, closeErr := rt.Close(ctx)
	err = errors.Join(err, closeErr)
	if n := len(left.Leaks); n > 0 && err == nil {
		err = fmt.Errorf("%d blocks are left over", n)
	}
	for _, f := range rt.Findings().Recent() {
		err = errors.Join(err, fmt.Errorf("a finding: %s", f.Text))
	}
	if err != nil {
		t.Error = err.Error()
		return t
	}
	t.OK, t.Step = true, "done"
	return t
}

// use allocates, fills, copies back, compares and frees.
func (t *SelfTest) use(ctx context.Context, rt *fencepost.Runtime) (err error) {
	// Switched here because FENCEPOST_GUARD overrides the configuration's mode.
	t.Step = "guard"
	if err := rt.Guard().SetMode(ctx, debugguard.Hunt); err != nil {
		return err
	}
	t.Step = "lease streams"
	x, err := rt.Streams().Acquire(ctx, "doctor")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Release()) }()
	y, release, err := second(ctx, rt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	t.Step = "allocate"
	block, err := cuda.Alloc[uint32](ctx, rt.Memory(), words, cuda.AllocOptions{Stream: x.ID(), Tag: "doctor"})
	if err != nil {
		return err
	}
	err = t.roundTrip(ctx, rt, block, x, y)
	if err == nil {
		t.Step = "free"
	}
	if err := errors.Join(err, block.Free(ctx)); err != nil {
		return err
	}
	t.Step = "verify the red zones"
	err = rt.Drain(ctx)
	t.RedZones = rt.Guard().GuardStats().Verified > 0
	if err != nil {
		return err
	}
	t.Step = "compare the books with the pool"
	return t.lookAtPool(rt)
}

// lookAtPool reads the pool, and demands that the books agree with it.
func (t *SelfTest) lookAtPool(rt *fencepost.Runtime) error {
	drift, err := rt.Drift()
	if err != nil || !drift.Known {
		return err // without a pool there is nothing to compare
	}
	if drift.Bytes != 0 {
		return fmt.Errorf("books and pool differ by %d bytes", drift.Bytes)
	}
	st := rt.Stats() // of this reading
	t.Pool = &Pool{Reserved: st.Reserved, Cached: st.Cached, Own: st.OwnPool.Present, Fragmented: st.OwnPool.Fragmented, Limit: st.OwnPool.Limit}
	return nil
}

// second is another stream than the one that is leased, and how to give it
// back. A pool of one has no more to lease and never will while the test holds
// it, so nothing is waited for and the device's default stream does.
func second(ctx context.Context, rt *fencepost.Runtime) (core.StreamID, func() error, error) {
	lease, err := rt.Streams().TryAcquire(ctx, "doctor")
	switch {
	case errors.Is(err, cuda.ErrNoStream):
		return core.DefaultStream, func() error { return nil }, nil
	case err != nil:
		return 0, nil, err
	}
	return lease.ID(), lease.Release, nil
}

// roundTrip fills on one stream and copies back on the other, so that the
// copy needs a fence. A backend that does not fence gets none, and both on one
// stream.
func (t *SelfTest) roundTrip(ctx context.Context, rt *fencepost.Runtime, block *cuda.Slice[uint32], x *cuda.Lease, y core.StreamID) error {
	host := make([]uint32, words)
	fill := func() error { return cuda.Memset(ctx, block, x.ID(), pattern) }
	back := func() error { return cuda.CopyToHost(ctx, host, block, y) }
	if !rt.Core().SupportsBlockUseTracking() {
		y = x.ID()
		fill = func() error { return rt.Driver().MemsetAsync(block.Ptr(), pattern, block.Bytes(), x.Handle()) }
		back = func() error { return rt.Driver().CopyToHostAsync(bytesOf(host), block.Ptr(), x.Handle()) }
	}
	t.Step = "fill"
	if err := fill(); err != nil {
		return err
	}
	t.Step = "copy back"
	if err := errors.Join(back(), rt.Streams().Synchronize(ctx, y)); err != nil {
		return err
	}
	t.Step = "compare"
	for i, word := range host {
		if word != pattern*0x01010101 {
			return fmt.Errorf("word %d came back as %#x, want %#x", i, word, uint32(pattern*0x01010101))
		}
	}
	return nil
}

// bytesOf is the memory of words.
func bytesOf(words []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 4*len(words))
}
