package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// BenchmarkGPUTrim is what it takes to give back all that a pool holds, which the device has
// passed, and, by itself, to take it from the device again: from 128 pages on that is in slabs.
func BenchmarkGPUTrim(b *testing.B) {
	drv := realGPU(b)()
	for _, pages := range []uint64{16, 127, 512, 5120} {
		b.Run(fmt.Sprintf("pages=%d", pages), func(b *testing.B) {
			ctx := context.Background()
			streams := made(b, func() (*cuda.StreamPool, error) { return cuda.NewStreamPool(drv, cuda.StreamPoolConfig{}) })
			p := made(b, func() (*cuda.PoolResource, error) { return cuda.NewPoolResource(drv, streams, cuda.PoolConfig{}) })
			lease := made(b, func() (*cuda.Lease, error) { return streams.Acquire(ctx, "bench") })
			page := made(b, drv.Properties).MapGranularity
			var grow time.Duration
			for b.Loop() {
				b.StopTimer()
				start := time.Now()
				block := made(b, func() (core.Block, error) {
					return p.Allocate(ctx, core.Request{Bytes: pages * page, Stream: lease.ID(), Tag: "bench"})
				})
				grow += time.Since(start)
				_, err := p.Deallocate(ctx, block.ID)
				check(b, err)
				check(b, p.Drain(ctx))
				b.StartTimer()
				check(b, p.TrimPool(0))
			}
			if st := p.Stats(); st.Reserved != 0 || st.OwnPool.Trims.Count == 0 {
				b.Fatalf("%d bytes are held after %d trims", st.Reserved, st.OwnPool.Trims.Count)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pages), "ns/page")
			b.ReportMetric(float64(grow.Nanoseconds())/float64(b.N)/float64(pages), "grow-ns/page")
			check(b, lease.Release())
			check(b, p.Close(ctx))
			check(b, streams.Close(ctx))
		})
	}
}
