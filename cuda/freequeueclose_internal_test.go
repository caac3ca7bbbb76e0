package cuda

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// Between the look that finds a free completed and its release somebody else may reap.
// Were the stream forgotten then, nobody would unmap the block, and a drain would not
// wait for it.
func TestAStreamIsNotForgottenWhileItsFreesAreOnTheirWay(t *testing.T) {
	for name, isolated := range map[string]bool{"of the pool": false, "isolated": true} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			device, err := sim.Open(sim.Config{})
			must(err)
			streams, err := NewStreamPool(device, StreamPoolConfig{})
			must(err)
			r, err := NewAsyncResource(device, streams, AsyncConfig{ReapInterval: -1})
			must(err)
			handle, err := device.StreamCreate()
			must(err)
			l, err := streams.Adopt(handle, "test")
			must(err)
			b, err := r.Allocate(ctx, core.Request{Bytes: 256, Stream: l.ID(), Isolated: isolated})
			must(err)
			_, err = r.Deallocate(ctx, b.ID)
			must(err)
			s := l.stream
			must(l.Release())
			must(device.StreamSynchronize(handle))

			s.Lock()
			done, err := r.takeCompleted(s, unlimited)
			s.Unlock()
			must(err)
			if len(done.entries) != 1 {
				t.Fatalf("the look finds %d frees completed", len(done.entries))
			}
			must(r.ReapPending(ctx))
			if !r.hasPending() || r.State(b.ID) != core.Retired {
				t.Error("the stream is forgotten with a free on its way")
			}
			r.releaseCompleted(done)
			must(r.ReapPending(ctx))
			must(r.ReapPending(ctx)) // forgets the stream
			if r.hasPending() || r.State(b.ID) != core.Freed || r.Stats().Outstanding() != (core.Amount{}) {
				t.Errorf("the block is %v, left over: %+v", r.State(b.ID), r.Stats().Outstanding())
			}
			must(r.Close(ctx))
			must(streams.Close(ctx))
			must(device.StreamDestroy(handle))
			must(device.Close())
		})
	}
}
