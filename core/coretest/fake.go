// Package coretest helps to test resources and what is built on them: a
// scripted fake, a fault injector that wraps any resource, and the
// conformance suite that every resource and every stack must pass.
package coretest

import (
	"context"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// Fake is an in-memory backend for tests of decorators: it has identities,
// states, intents and pending frees, and no device. Frees stay pending until
// [Fake.Pass] or Drain. It is safe for concurrent use.
type Fake struct {
	ordinal int

	mu        sync.Mutex
	next      uint64
	blocks    map[core.Generation]*core.Block
	odometers map[core.StreamID]core.Odometer
	listeners []core.Listener
	stats     core.Stats
	calls     []string
	script    map[string][]error
	immediate bool
}

var _ core.Resource = (*Fake)(nil)
var _ core.Inspector = (*Fake)(nil)

// NewFake returns a fake for device ordinal.
func NewFake(ordinal int) *Fake {
	return &Fake{ordinal: ordinal, next: 0x10000, blocks: map[core.Generation]*core.Block{},
		odometers: map[core.StreamID]core.Odometer{}, script: map[string][]error{}}
}

// FailNext makes the next calls of the method called op return errs, one
// each; a nil among them lets that call through.
func (f *Fake) FailNext(op string, errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script[op] = append(f.script[op], errs...)
}

// ReleaseAtFree makes frees complete inside Deallocate from now on, as on a
// synchronous backend.
func (f *Fake) ReleaseAtFree() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.immediate = true
}

// Calls returns the methods called so far, such as "Allocate 64 tag", and
// forgets them.
func (f *Fake) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// Pass lets the device pass all pending frees.
func (f *Fake) Pass() {
	f.mu.Lock()
	var passed []core.Block
	for g, b := range f.blocks {
		if b.State == core.Retired {
			passed = append(passed, *b)
			f.forget(g)
		}
	}
	f.mu.Unlock()
	f.notify(passed)
}

// begin notes a call and takes its scripted error; f.mu must be held.
func (f *Fake) begin(op, format string, args ...any) error {
	f.calls = append(f.calls, op+" "+fmt.Sprintf(format, args...))
	errs := f.script[op]
	if len(errs) == 0 {
		return nil
	}
	f.script[op] = errs[1:]
	return errs[0]
}

func (f *Fake) forget(g core.Generation) {
	b := f.blocks[g]
	delete(f.blocks, g)
	f.stats.Pending = f.stats.Pending.Sub(amount(b))
	o := f.odometers[b.ID.AllocStream]
	o.Passed += b.Bytes
	f.odometers[b.ID.AllocStream] = o
}

func (f *Fake) notify(passed []core.Block) {
	f.mu.Lock()
	listeners := f.listeners
	f.mu.Unlock()
	for _, b := range passed {
		b.State = core.Freed
		for _, l := range listeners {
			l.Released(b)
		}
	}
}

func amount(b *core.Block) core.Amount {
	return core.Amount{Bytes: b.Bytes, Requested: b.Requested, Blocks: 1}
}

// Allocate returns a block at a fresh address.
func (f *Fake) Allocate(_ context.Context, r core.Request) (core.Block, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("Allocate", "%d %s", r.Bytes, r.Tag.OrUntagged()); err != nil {
		return core.Block{}, err
	}
	r, err := r.Normalize("Allocate")
	if err != nil {
		return core.Block{}, err
	}
	b := &core.Block{
		ID:        core.BlockID{Ptr: f.next, Generation: core.NextGeneration(), AllocStream: r.Stream, Ordinal: f.ordinal},
		Requested: r.Requested, Bytes: r.Bytes, Align: core.DefaultAlign, Tag: r.Tag, State: core.Live,
	}
	f.next += (r.Bytes + 511) / 256 * 256
	f.blocks[b.ID.Generation] = b
	f.stats.Allocations++
	f.stats.Live = f.stats.Live.Add(amount(b))
	f.stats.PeakRequested = max(f.stats.PeakRequested, f.stats.Live.Requested)
	f.stats.PeakBytes = max(f.stats.PeakBytes, f.stats.Outstanding().Bytes)
	return *b, nil
}

// Deallocate retires the block, or frees it after [Fake.ReleaseAtFree].
func (f *Fake) Deallocate(_ context.Context, id core.BlockID) (core.Block, error) {
	f.mu.Lock()
	if err := f.begin("Deallocate", "%d", id.Generation); err != nil {
		f.mu.Unlock()
		return core.Block{}, err
	}
	b, err := f.live("Deallocate", id)
	if err != nil {
		f.mu.Unlock()
		return core.Block{}, err
	}
	b.State = core.Retired
	f.stats.Deallocations++
	f.stats.Live = f.stats.Live.Sub(amount(b))
	f.stats.Pending = f.stats.Pending.Add(amount(b))
	o := f.odometers[id.AllocStream]
	o.Queued += b.Bytes
	f.odometers[id.AllocStream] = o
	result, immediate := *b, f.immediate
	if immediate {
		f.forget(id.Generation)
		result.State = core.Freed
	}
	f.mu.Unlock()
	if immediate {
		f.notify([]core.Block{result})
	}
	return result, nil
}

func (f *Fake) live(op string, id core.BlockID) (*core.Block, error) {
	if id.Ordinal != f.ordinal {
		return nil, &core.StreamMisuseError{Op: op, Block: id, Reason: "the block belongs to another device"}
	}
	b, ok := f.blocks[id.Generation]
	if !ok {
		return nil, &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: core.Freed}
	}
	if b.State != core.Live {
		return nil, &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: b.State, Tag: b.Tag}
	}
	return b, nil
}
