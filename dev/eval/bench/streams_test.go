package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// BenchmarkPairAmongStreams is the pair on each of many streams in turn, while the reaper asks
// how far the device has come on each: what it costs must not grow with the streams.
func BenchmarkPairAmongStreams(b *testing.B) {
	for name, newBackend := range map[string]constructor{"async": async, "pool": pool} {
		for _, n := range []int{1, 64, 512, 1000, 2000} {
			b.Run(fmt.Sprintf("%s/streams=%d", name, n), func(b *testing.B) {
				s := openOn(b, &drivertest.Null{}, newBackend, func(*cuda.StreamPool) []core.Layer { return nil })
				var streams []core.StreamID
				ctx := context.Background()
				var spare []core.BlockID
				for i := range 2 * n { // each stream has memory of its own, and the peak was higher
					if i < n {
						streams = append(streams, s.lease(b).ID())
					}
					kept, err := s.runtime.Allocate(ctx, core.Request{Bytes: 4096, Stream: streams[i%n], Tag: "bench"})
					if err != nil {
						b.Fatal(err)
					}
					if i >= n {
						spare = append(spare, kept.ID)
						continue
					}
					b.Cleanup(func() { _, _ = s.runtime.Deallocate(ctx, kept.ID) })
				}
				for _, id := range spare {
					if _, err := s.runtime.Deallocate(ctx, id); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if err := s.pair(ctx, streams[i%n]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
