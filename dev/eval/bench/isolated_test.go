package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// BenchmarkIsolatedPair is what the runtime itself adds to the calls of an
// isolated block, over a driver that does nothing: those calls alone are the
// baseline.
func BenchmarkIsolatedPair(b *testing.B) { isolatedPairs(b, &drivertest.Null{}, 4<<10) }

// isolatedPairs measures allocation and free of isolated blocks: the seven
// driver calls alone, through the backend, and through runtimes of services. The
// unmaps are made in passing by later frees, and are in the figures.
func isolatedPairs(b *testing.B, d driver.Driver, sizes ...uint64) {
	b.Helper()
	p, err := d.Properties()
	check(b, err)
	if p.MapGranularity == 0 {
		b.Skip("no CUDA driver here that maps memory")
	}
	for _, bytes := range sizes {
		size := (bytes + p.MapGranularity - 1) &^ (p.MapGranularity - 1)
		b.Run(fmt.Sprintf("bytes=%d/driver", bytes), func(b *testing.B) {
			for b.Loop() {
				check(b, mapOnce(d, size))
			}
		})
		for _, c := range ways {
			b.Run(fmt.Sprintf("bytes=%d/%s", bytes, c.name), func(b *testing.B) {
				s := c.open(b, d, fencepost.Async)
				stream, ctx := s.lease(b).ID(), s.ctx
				b.ReportAllocs()
				for b.Loop() {
					check(b, s.isolatedPair(ctx, stream, bytes))
				}
				check(b, s.runtime.Drain(ctx))
			})
		}
	}
}

// mapOnce maps memory and unmaps it, as the backend does.
func mapOnce(d driver.Driver, size uint64) error {
	ptr, err := d.MemReserve(size)
	if err != nil {
		return err
	}
	h, err := d.MemCreate(size)
	if err != nil {
		return errors.Join(err, d.MemUnreserve(ptr, size))
	}
	return errors.Join(d.MemMap(ptr, size, h), d.MemAccess(ptr, size), d.MemRelease(h), d.MemUnmap(ptr, size), d.MemUnreserve(ptr, size))
}

func (s *stack) isolatedPair(ctx context.Context, stream core.StreamID, bytes uint64) error {
	b, err := s.runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: stream, Tag: "bench", Isolated: true})
	if err != nil {
		return err
	}
	_, err = s.runtime.Deallocate(ctx, b.ID)
	return err
}
