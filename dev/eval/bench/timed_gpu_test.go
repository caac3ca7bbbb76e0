package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// timed is an option of service: of how many launches one is timed on the device.
func timed(oneIn int) func(*fencepost.Config) {
	return func(cfg *fencepost.Config) { cfg.TimeOneIn = oneIn }
}

// BenchmarkGPUTimedLaunch is what it costs the host to time a launch on the device, by the waits that are queued for it: it reads
// blocks that as many other streams wrote last. These writes are in both figures.
func BenchmarkGPUTimedLaunch(b *testing.B) {
	g := openGPU(b)
	for _, waits := range []int{0, 1, 2, 4, 8} {
		for _, sampled := range []bool{false, true} {
			b.Run(fmt.Sprintf("waits=%d/timed=%v", waits, sampled), func(b *testing.B) {
				s := service(b, g, timed(-1))
				reader, read := s.lease(b).ID(), []core.Use(nil)
				var writers []core.StreamID
				for range waits {
					writer := s.lease(b).ID()
					writers, read = append(writers, writer), append(read, blocks(b, s, writer, 1)...)
				}
				for i := range read {
					read[i].Access = core.Read
				}
				ctx, up, nothing := context.Background(), s.runtime.Resource(), func(context.Context) error { return nil }
				req := core.UseRequest{Stream: reader, Uses: read, Span: core.SpanContext{SpanRef: core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{1}}, Sampled: sampled}}
				for i := 0; b.Loop(); i++ {
					for w, writer := range writers {
						write := read[w]
						write.Access = core.Write
						check(b, s.runtime.Launch(ctx, writer, []core.Use{write}, nothing))
					}
					ticket, err := up.PrepareUse(ctx, req)
					check(b, err)
					check(b, up.FinishUse(ctx, ticket))
					if i%64 == 0 { // there is a limit to what is timed at once
						b.StopTimer()
						check(b, g.Synchronize())
						check(b, up.ReapPending(ctx))
						b.StartTimer()
					}
				}
			})
		}
	}
}
