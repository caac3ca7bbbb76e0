package bench

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// BenchmarkGPUFaults is an allocation with its free, and a launch of nothing over one block, of a runtime as FENCEPOST_FAULTS has it: run it with name
// and with off, in turn, because the driver is armed once for a process.
func BenchmarkGPUFaults(b *testing.B) {
	ctx := context.Background()
	rt, err := fencepost.Open(ctx, fencepost.Config{Device: fencepost.CUDA, Guard: fencepost.GuardOff})
	check(b, err)
	defer func() {
		_, err := rt.Close(ctx)
		check(b, err)
	}()
	lease, err := rt.Streams().Acquire(ctx, "bench")
	check(b, err)
	defer func() { check(b, lease.Release()) }()
	req := core.Request{Bytes: 1 << 20, Stream: lease.ID(), Tag: "bench"}
	b.Run("pair", func(b *testing.B) {
		for b.Loop() {
			block, err := rt.Allocate(ctx, req)
			check(b, err)
			_, err = rt.Deallocate(ctx, block.ID)
			check(b, err)
		}
	})
	block, err := rt.Allocate(ctx, req)
	check(b, err)
	uses, nothing := []core.Use{{Block: block.ID, Access: core.ReadWrite}}, func(context.Context) error { return nil }
	b.Run("launch", func(b *testing.B) {
		for b.Loop() {
			check(b, rt.Launch(ctx, lease.ID(), uses, nothing))
		}
	})
	_, err = rt.Deallocate(ctx, block.ID)
	check(b, err)
}
