package cuda_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// What a free queues on a stream that is being destroyed, after the host has
// synchronised with it, the device has not passed: the stream is synchronised
// again. The free may fail behind its waits, or be that of an isolated block,
// which is nothing on the stream but its waits.
func TestAStreamIsIdleWhenWhatFreesQueuedThereIsDone(t *testing.T) {
	for name, isolated := range map[string]bool{"isolated": true, "failed": false} {
		t.Run(name, func(t *testing.T) {
			b, slow := newSlowBench(t, deviceOrdered)
			s := b.leases(2)
			var block core.Block
			if isolated {
				block = b.isolate(s[0], 100)
			} else {
				block = b.alloc(s[0], 100)
			}
			finish := b.hold(s[1])
			b.launch(s[1], writes(block))
			must(t, s[0].Release())
			arrived, release := slow.stall(t, drivertest.StreamSynchronize, true)
			var synchronised atomic.Int32
			stall := *slow.hook.Load()
			counted := func(m drivertest.Method, after bool) {
				if m == drivertest.StreamSynchronize && !after {
					synchronised.Add(1)
				}
				stall(m, after)
			}
			slow.hook.Store(&counted)
			short, cancel := within(1)
			defer cancel()
			if err := b.Streams.Close(short); err == nil {
				t.Error("closed while a lease is held")
			}
			<-arrived
			if !isolated {
				b.faults.FailMethod(drivertest.MemFreeAsync, 1, driver.Unknown)
			}
			if _, err := b.Runtime.Deallocate(ctx, block.ID); isolated != (err == nil) || err != nil && !errors.Is(err, core.ErrDriver) {
				t.Fatal(err)
			}
			release()
			for synchronised.Load() < 2 && b.faults.Calls(drivertest.StreamDestroy) == 0 {
				time.Sleep(time.Millisecond)
			}
			equal(t, "streams destroyed", b.faults.Calls(drivertest.StreamDestroy), 0)
			must(t, b.Runtime.ReapPending(ctx))
			if isolated {
				b.mapped("in use", 1)
			}
			finish()
			if !isolated {
				b.free(block)
			}
			b.drain()
		})
	}
}
