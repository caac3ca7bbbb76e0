package runtimes_test

import (
	"context"
	"testing"

	fencepost "github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// The guard's own work never goes into a graph. What it could not put on the
// stream is counted, and nothing is found that nobody did.
func TestTheGuardKeepsOutOfACaptureAndSaysSo(t *testing.T) {
	for _, guard := range []string{"sample:1", "hunt", "hunt:bisect+delay"} {
		t.Run(guard, func(t *testing.T) {
			ctx := context.Background()
			rt := e2e.Open(t, fencepost.Config{Device: fencepost.Sim, Guard: fencepost.GuardMode(guard)})
			on := e2e.Lease(t, rt, "capture")
			var blocks []core.Block
			for range 4 {
				b, err := rt.Allocate(ctx, core.Request{Bytes: 1000, Stream: on.ID(), Tag: "captured"})
				must.Do(t, err)
				blocks = append(blocks, b)
			}
			used := blocks[0]
			graph, err := on.Capture(ctx, "graph", []core.Use{{Block: used.ID, Access: core.Write}}, func(s driver.Stream) error {
				for _, b := range blocks[1:] { // its stream captures
					if _, err := rt.Deallocate(ctx, b.ID); err != nil {
						return err
					}
				}
				return rt.Driver().MemsetAsync(used.ID.Ptr, 7, used.Bytes, s)
			})
			must.Do(t, err)
			if g := rt.Guard().GuardStats(); g.Captured < 3 {
				t.Errorf("%d accesses were kept out of the capture", g.Captured)
			}
			for range 10 {
				must.Do(t, graph.Launch(ctx, rt, on))
			}
			must.Do(t, graph.Close())
			must.Get(rt.Deallocate(ctx, used.ID))(t)
			must.Do(t, rt.Drain(ctx))
			if g := rt.Guard().GuardStats(); g.Findings != 0 || g.Quarantine.Blocks != 0 || g.Known != 0 || g.Verified == 0 {
				t.Errorf("after the capture: %+v", g)
			}
		})
	}
}
