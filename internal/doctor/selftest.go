package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
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
	cfg.Guard = "hunt"
	t.Step = "open"
	rt, err := fencepost.Open(ctx, cfg)
	if err != nil {
		t.Error = err.Error()
		return t
	}
	choice := rt.DeviceChoice()
	t.Device, t.Stack, t.Budget = &choice, rt.String(), rt.Stats().Limit
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
	t.Step = "lease streams"
	x, err := rt.Streams().Acquire(ctx, "doctor")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Release()) }()
	y, err := rt.Streams().Acquire(ctx, "doctor")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, y.Release()) }()
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
	return rt.Drain(ctx)
}

// roundTrip fills on one stream and copies back on the other, so that the
// copy needs a fence. A backend that does not fence gets none, and both on one
// stream.
func (t *SelfTest) roundTrip(ctx context.Context, rt *fencepost.Runtime, block *cuda.Slice[uint32], x, y *cuda.Lease) error {
	host := make([]uint32, words)
	fill := func() error { return cuda.Memset(ctx, block, x.ID(), pattern) }
	back := func() error { return cuda.CopyToHost(ctx, host, block, y.ID()) }
	if !rt.SupportsBlockUseTracking() {
		y = x
		fill = func() error { return rt.Driver().MemsetAsync(block.Ptr(), pattern, block.Bytes(), x.Handle()) }
		back = func() error { return rt.Driver().CopyToHostAsync(bytesOf(host), block.Ptr(), x.Handle()) }
	}
	t.Step = "fill"
	if err := fill(); err != nil {
		return err
	}
	t.Step = "copy back"
	if err := errors.Join(back(), rt.Streams().Synchronize(ctx, y.ID())); err != nil {
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
