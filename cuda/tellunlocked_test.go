package cuda_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// lookedAt is a size of which a single free makes a reap look.
const lookedAt = 40 << 20

// tellers are the calls that release blocks and so tell listeners. Each returns the call,
// before which the device is done with one block of home, and the mark behind it made.
var tellers = map[string]func(b *bench, home, other *cuda.Lease) func() error{
	"a reap": func(b *bench, home, _ *cuda.Lease) func() error {
		b.passed(home)
		return func() error { return b.Runtime.ReapPending(ctx) }
	},
	"an allocation": func(b *bench, home, _ *cuda.Lease) func() error {
		b.passed(home)
		return func() (err error) {
			for range 32 { // of which one looks
				err = errors.Join(err, b.tryAlloc(home, new(core.Block)))
			}
			return err
		}
	},
	"a free": func(b *bench, home, _ *cuda.Lease) func() error {
		block := b.alloc(home, lookedAt)
		b.passed(home)
		return func() error { _, err := b.Async.Deallocate(ctx, block.ID); return err }
	},
	"the end of a launch": func(b *bench, home, other *cuda.Lease) func() error {
		end := b.retiredUnderALaunch(home, other)
		b.passed(home)
		return end
	},
	"another try": func(b *bench, home, other *cuda.Lease) func() error {
		end := b.retiredUnderALaunch(home, other)
		b.faults.FailMethod(drivertest.MemFreeAsync, 1, driver.Unknown)
		must(b, end())
		b.passed(home)
		return func() error { return b.Runtime.ReapPending(ctx) }
	},
	"the end of a launch in the backlog": func(b *bench, home, other *cuda.Lease) func() error {
		block := b.alloc(home, lookedAt)
		b.sync(home)
		g, err := other.Capture(ctx, "graph", nil, func(driver.Stream) error {
			misuse(b.T, "the recorded use", b.Runtime.RecordBlockUse(ctx, block.ID, other.ID()))
			b.free(block)
			return nil
		})
		must(b, errors.Join(err, g.Close()))
		b.passed(home)
		return func() error { return b.Runtime.ReapPending(ctx) }
	},
	"an isolated allocation": func(b *bench, home, _ *cuda.Lease) func() error {
		b.free(b.isolate(home, lookedAt))
		b.sync(home)
		return func() error { _, err := b.Async.Allocate(ctx, isolated(home, 256)); return err }
	},
}

// passed frees a block that the device is done with, and has a mark made behind it.
func (b *bench) passed(home *cuda.Lease) {
	b.Helper()
	block := b.alloc(home, lookedAt)
	release := b.hold(home)
	b.free(block)
	release()
	b.sync(home)
}

// retiredUnderALaunch is the end of a launch that the free of a large block waits for.
func (b *bench) retiredUnderALaunch(home, other *cuda.Lease) func() error {
	b.Helper()
	block := b.alloc(home, lookedAt)
	ticket := b.prepare(other, writes(block))
	b.enqueue(other, writes(block))
	b.free(block)
	must(b, b.Sim.StreamSynchronize(other.Handle()))
	return func() error { return b.Runtime.FinishUse(ctx, ticket) }
}

// No lock of the backend's is held while a listener is told, and nobody who must come
// first waits for it: even a listener that does what [core.Listener] forbids, and
// calls the resource, would not wait for itself.
func TestListenersAreToldWithNoLockHeld(t *testing.T) {
	for name, arrange := range tellers {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			s := b.leases(2)
			call := arrange(b, s[0], s[1])
			var heard atomic.Int32
			b.Async.Subscribe(listener(func(core.Block) {
				if heard.Add(1) == 1 {
					b.callEverything(s[0], s[1])
				}
			}))
			must(t, call()) // or it waits for ever for a lock that it holds itself
			if heard.Load() == 0 {
				t.Error("nobody was told: the test proves nothing")
			}
			b.freeAll()
			b.drain()
			equal(t, "outstanding", b.Async.Stats().Outstanding(), core.Amount{})
		})
	}
}

// callEverything makes the calls that take locks of queues and streams.
func (b *bench) callEverything(on, other *cuda.Lease) {
	block, isolatedBlock := b.alloc(on, 256), b.isolate(on, 256)
	for _, l := range []*cuda.Lease{on, other} {
		must(b, b.Async.RecordUse(ctx, block.ID, l.ID()))
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t, err := b.Async.PrepareUse(bounded, core.UseRequest{Stream: other.ID(), Uses: declared(writes(block)), Wait: true})
	must(b, err)
	b.free(isolatedBlock, block)
	must(b, b.Async.FinishUse(ctx, t))
	b.sync(on, other)
	must(b, b.Async.TrimPool(0))
	_ = b.Async.Stats()
	_, err = b.Async.Drift()
	must(b, err)
}

// freeAll frees what is live.
func (b *bench) freeAll() {
	b.Helper()
	var live []core.Block
	b.Async.Inspect().Blocks(func(i core.BlockInfo) bool {
		if i.Block.State == core.Live {
			live = append(live, i.Block)
		}
		return true
	})
	b.free(live...)
}
