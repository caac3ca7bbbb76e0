package cuda_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/niltest"
)

func TestAMethodOfNilIsAnError(t *testing.T) {
	for _, handle := range []any{(*cuda.Slice[byte])(nil), (*cuda.HostBuffer[byte])(nil), (*cuda.Lease)(nil), (*cuda.StreamPool)(nil),
		(*cuda.Kernel)(nil), (*cuda.Module)(nil), (*cuda.Graph)(nil)} {
		niltest.Refuses(t, handle)
	}
	var none *cuda.Slice[int32]
	if none.Len() != 0 || none.Bytes() != 0 || none.Ptr() != 0 || none.BlockID().Generation != core.NoBlock {
		t.Error("a nil slice is something")
	}
}

func TestNilWhereSomethingIsNeededIsAnError(t *testing.T) {
	b := newBench(t)
	l, other := b.Lease(t, "test"), b.Lease(t, "other")
	x, err := cuda.Alloc[byte](ctx, b.Memory, 8, cuda.AllocOptions{Stream: l.ID()})
	must(t, err)
	var none *cuda.Slice[byte]
	unmanaged := cuda.NewUntrackedManager(nil, nil, 0)
	null := &drivertest.Null{}
	_, alloc := cuda.Alloc[byte](ctx, nil, 8, cuda.AllocOptions{})
	_, untracked := cuda.Alloc[byte](ctx, unmanaged, 8, cuda.AllocOptions{})
	_, host := cuda.AllocHost[byte](nil, 8)
	_, untrackedHost := cuda.AllocHost[byte](unmanaged, 8)
	_, download := cuda.Download(ctx, none, l.ID())
	_, pool := cuda.NewStreamPool(nil, cuda.StreamPoolConfig{})
	_, async := cuda.NewAsyncResource(nil, b.Streams, cuda.AsyncConfig{})
	_, poolless := cuda.NewAsyncResource(null, nil, cuda.AsyncConfig{})
	_, manager := cuda.NewMemoryManager(nil, b.Streams, b.Runtime)
	_, streamless := cuda.NewMemoryManager(null, nil, b.Runtime)
	_, unmanned := cuda.NewMemoryManager(null, b.Streams, nil)
	_, ops := cuda.NewDeviceOps(nil, b.Streams, guardkernels.Image())
	_, opsless := cuda.NewDeviceOps(null, nil, guardkernels.Image())
	_, module := cuda.LoadModule(nil, driver.Image{})
	_, capture := l.Capture(ctx, "a", nil, nil)
	_, forked := l.Capture(ctx, "a", nil, func(driver.Stream) error { return nil }, nil)
	for what, err := range map[string]error{
		"Alloc": alloc, "Alloc over a manager of nothing": untracked, "AllocHost": host, "AllocHost over a manager of nothing": untrackedHost,
		"Download": download, "NewStreamPool": pool, "NewAsyncResource": async, "NewAsyncResource without streams": poolless,
		"NewMemoryManager": manager, "NewMemoryManager without streams": streamless, "NewMemoryManager without runtime": unmanned,
		"NewDeviceOps": ops, "NewDeviceOps without streams": opsless, "LoadModule": module, "Capture": capture, "Capture over nil": forked,
		"CopyToDevice": cuda.CopyToDevice(ctx, none, l.ID(), []byte{1}), "CopyToHost": cuda.CopyToHost(ctx, []byte{1}, none, l.ID()),
		"CopyOnDevice to nil": cuda.CopyOnDevice(ctx, none, x, l.ID()), "CopyOnDevice from nil": cuda.CopyOnDevice(ctx, x, none, l.ID()),
		"CopyFromPeer to nil": cuda.CopyFromPeer(ctx, none, l.ID(), x, l.ID()), "CopyFromPeer from nil": cuda.CopyFromPeer(ctx, x, l.ID(), none, l.ID()),
		"Memset": cuda.Memset(ctx, none, l.ID(), 1), "Launch on nil": b.kernel.Launch(ctx, b.Runtime, nil, grid, nil),
		"Launch in nil": b.kernel.Launch(ctx, nil, l, grid, nil),
	} {
		if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Op == "" || e.Field == "" || e.Reason == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.Async.Subscribe(nil)
	must(t, x.Free(ctx)) // the listener that there is not is told of nothing
	b.drain()
	must(t, other.Release())
}

// A nil context is refused as a mistake of the caller's, and the call can be made again.
func TestANilContextIsRefused(t *testing.T) {
	b := newBench(t)
	l, host := b.leases(1)[0], b.host(8)
	var none context.Context
	for op, call := range map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error {
			lease, err := b.Streams.Acquire(ctx, "x")
			if err == nil {
				err = lease.Release()
			}
			return err
		},
		"TryAcquire": func(ctx context.Context) error {
			lease, err := b.Streams.TryAcquire(ctx, "x")
			if err == nil {
				err = lease.Release()
			}
			return err
		},
		"Synchronize": func(ctx context.Context) error { return b.Streams.Synchronize(ctx, l.ID()) },
		"Capture": func(ctx context.Context) error {
			g, err := l.Capture(ctx, "none", nil, func(driver.Stream) error { return nil })
			if err == nil {
				err = g.Close()
			}
			return err
		},
		"HostBuffer.Free": host.Free,
	} {
		expect.Error(t, call(none), core.ErrInvalidRequest, op)
		must(t, call(ctx))
	}
}
