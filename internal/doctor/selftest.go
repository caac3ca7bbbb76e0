package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// words is the size of the self-test's block: 1 MiB.
const words = 1 << 18

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

// use allocates, fills, copies to another stream's host buffer, compares and
// frees.
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
	err = t.roundTrip(ctx, rt, block, x.ID(), y.ID())
	if err == nil {
		t.Step = "free"
	}
	if err := errors.Join(err, block.Free(ctx)); err != nil {
		return err
	}
	t.Step = "verify the red zones"
	return rt.Drain(ctx)
}

func (t *SelfTest) roundTrip(ctx context.Context, rt *fencepost.Runtime, block *cuda.Slice[uint32], x, y core.StreamID) error {
	t.Step = "fill"
	if err := cuda.Memset(ctx, block, x, 0x5a); err != nil {
		return err
	}
	t.Step = "copy back"
	host := make([]uint32, words)
	if err := cuda.CopyToHost(ctx, host, block, y); err != nil {
		return err
	}
	if err := rt.Streams().Synchronize(ctx, y); err != nil {
		return err
	}
	t.Step = "compare"
	for i, word := range host {
		if word != 0x5a5a5a5a {
			return fmt.Errorf("word %d came back as %#x, want 0x5a5a5a5a", i, word)
		}
	}
	return nil
}
