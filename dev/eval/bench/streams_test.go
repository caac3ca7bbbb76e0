package bench

import (
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// BenchmarkPairAmongStreams is a request's worth of pairs on each of many streams in turn, while
// the reaper asks how far the device has come on each: of 2000 streams a pair costs at most twice as
// much as of one.
func BenchmarkPairAmongStreams(b *testing.B) {
	const pairsOfARequest = 32
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
		for _, n := range []int{1, 64, 512, 1000, 2000} {
			b.Run(fmt.Sprintf("%s/streams=%d", backend, n), func(b *testing.B) {
				s := service(b, nothing(), over(backend))
				var streams []core.StreamID
				ctx := s.ctx
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
					if err := s.pair(ctx, streams[i/pairsOfARequest%n]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
