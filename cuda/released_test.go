package cuda_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	test "github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// remembering is a backend that may remember what it released.
type remembering interface {
	core.Resource
	Released(yield func(core.Block) bool)
}

// A block is in the books or among the released ones at any moment, whichever way it is freed: a
// reader who lists the books first does not miss it.
func TestABlockThatIsReleasedIsNeverNowhere(t *testing.T) {
	for name, open := range map[string]func(*cuda.StreamPool, *drivertest.Null) remembering{
		"pool": func(s *cuda.StreamPool, drv *drivertest.Null) remembering {
			r := test.Get(cuda.NewPoolResource(drv, s, cuda.PoolConfig{}))(t)
			t.Cleanup(func() { test.Do(t, r.Close(context.Background())) })
			return r
		},
		"async": func(s *cuda.StreamPool, drv *drivertest.Null) remembering {
			r := test.Get(cuda.NewAsyncResource(drv, s, cuda.AsyncConfig{}))(t)
			t.Cleanup(func() { test.Do(t, r.Close(context.Background())) })
			return r
		},
		"direct": func(_ *cuda.StreamPool, drv *drivertest.Null) remembering { return cuda.NewDirectResource(drv) },
	} {
		t.Run(name, func(t *testing.T) {
			drv := &drivertest.Null{}
			streams := test.Get(cuda.NewStreamPool(drv, cuda.StreamPoolConfig{RememberReleased: true}))(t)
			t.Cleanup(func() { test.Do(t, streams.Close(context.Background())) })
			r := open(streams, drv)
			var newest [4]atomic.Uint64 // the newest generation of each goroutine
			var leases [4]core.StreamID
			var stop atomic.Bool
			var freed atomic.Int64
			var working sync.WaitGroup
			goroutines := len(newest)
			if name == "direct" { // one list for all streams, whose order is not that of the generations
				goroutines = 1
			}
			for i := range goroutines {
				lease := test.Get(streams.Acquire(t.Context(), "test"))(t)
				t.Cleanup(func() { test.Do(t, lease.Release()) })
				leases[i] = lease.ID()
				working.Go(func() {
					for n := 0; !stop.Load(); n++ {
						b := test.Get(r.Allocate(t.Context(), core.Request{Bytes: 4096, Stream: lease.ID(), Tag: "test"}))(t)
						newest[i].Store(uint64(b.ID.Generation))
						if i%2 == 1 { // a reap releases the block
							test.Do(t, r.RecordUse(t.Context(), b.ID, core.DefaultStream))
						}
						test.Get(r.Deallocate(t.Context(), b.ID))(t)
						freed.Add(1)
						if n%16 == 0 {
							test.Do(t, r.ReapPending(t.Context()))
						}
					}
				})
			}
			for looks := 0; looks < 300 || freed.Load() < 2000; looks++ {
				sought := map[core.Generation]core.StreamID{}
				for i := range newest {
					if g := core.Generation(newest[i].Load()); g != 0 {
						sought[g] = leases[i]
					}
				}
				r.Inspect().Blocks(func(info core.BlockInfo) bool { delete(sought, info.Block.ID.Generation); return true })
				oldest := map[core.StreamID]core.Generation{} // what is older was forgotten rightly
				for b := range r.Released {
					if b.State == core.Live || b.Bytes == 0 || b.Tag != "test" {
						t.Errorf("a released block is %+v", b)
					}
					if _, known := oldest[b.ID.AllocStream]; !known {
						oldest[b.ID.AllocStream] = b.ID.Generation
					}
					delete(sought, b.ID.Generation)
				}
				for g, stream := range sought {
					if g > oldest[stream] {
						t.Errorf("generation %s is nowhere", g)
					}
				}
			}
			stop.Store(true)
			working.Wait()
			test.Do(t, r.Drain(t.Context()))
		})
	}
}

func TestReleasedBlocksAreForgottenUnlessTheyAreAskedFor(t *testing.T) {
	drv := &drivertest.Null{}
	streams := test.Get(cuda.NewStreamPool(drv, cuda.StreamPoolConfig{}))(t)
	defer func() { test.Do(t, streams.Close(context.Background())) }()
	r := test.Get(cuda.NewPoolResource(drv, streams, cuda.PoolConfig{}))(t)
	defer func() { test.Do(t, r.Close(context.Background())) }()
	b := test.Get(r.Allocate(t.Context(), core.Request{Bytes: 4096}))(t)
	test.Get(r.Deallocate(t.Context(), b.ID))(t)
	test.Do(t, r.Drain(t.Context()))
	for b := range r.Released {
		t.Errorf("%v is remembered", b)
	}
}
