package coretest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// fakeCapacity is more than any test asks for in earnest, and less than the
// petabyte that every backend must refuse.
const fakeCapacity = 1 << 40

// Fake is an in-memory backend for tests of decorators: it has identities,
// states, intents and pending frees, and no device. Frees stay pending until
// [Fake.Pass] or Drain. It is safe for concurrent use.
type Fake struct {
	core.Unsupported
	ordinal int

	mu           sync.Mutex
	next         uint64
	blocks       map[core.Generation]*fakeBlock
	queue        []core.Generation // frees the device has not passed, in order
	freeCounters map[core.StreamID]core.FreeCounters
	listeners    []core.Listener
	stats        core.Stats
	withheld     core.Amount
	calls        []string
	script       map[string][]error
	immediate    bool
	granule      uint64                 // of isolated blocks, 0 if there are none
	leases       map[core.StreamID]bool // nil until the first Lease
	closed       chan struct{}          // closed and replaced whenever an intent closes
}

var _ core.Resource = (*Fake)(nil)

// NewFake returns a fake for device ordinal.
func NewFake(ordinal int) *Fake {
	return &Fake{Unsupported: core.Unsupported{Resource: fmt.Sprintf("fake:%d", ordinal)}, ordinal: ordinal, next: 0x10000, blocks: map[core.Generation]*fakeBlock{},
		freeCounters: map[core.StreamID]core.FreeCounters{}, script: map[string][]error{}, closed: make(chan struct{})}
}

// FailNext makes the next calls of the method called op return errs, one
// each; a nil among them lets that call through.
func (f *Fake) FailNext(op string, errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script[op] = append(f.script[op], errs...)
}

// ReleaseAtFree makes frees complete inside Deallocate from now on, as on a
// synchronous backend; those held back by an open intent complete when it
// closes.
func (f *Fake) ReleaseAtFree() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.immediate = true
}

// Isolate lets the fake take requests for isolated blocks from now on, in units
// of granularity bytes. They are blocks like all others, as no address comes
// again here.
func (f *Fake) Isolate(granularity uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.granule = granularity
}

// granularity is that of Isolate; 0 before.
func (f *Fake) granularity() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.granule
}

// Calls returns the methods called so far, such as "Allocate 64 tag" or
// "Allocate 64 tag isolated", and forgets them.
func (f *Fake) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// Pass lets the device pass all pending frees, in the order in which they
// were queued. A free that an open intent holds back is not queued yet.
func (f *Fake) Pass() {
	f.mu.Lock()
	passed := make([]core.Block, 0, len(f.queue))
	for _, g := range f.queue {
		passed = append(passed, f.forget(g))
	}
	f.queue = nil
	f.mu.Unlock()
	f.notify(passed...)
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

// forget takes a block whose free was passed off the books.
func (f *Fake) forget(g core.Generation) core.Block {
	b := f.blocks[g]
	delete(f.blocks, g)
	f.stats.Pending = f.stats.Pending.Sub(amount(b))
	o := f.freeCounters[b.ID.AllocStream]
	o.Completed += b.Bytes
	f.freeCounters[b.ID.AllocStream] = o
	b.State = core.Freed
	return b.Block
}

func (f *Fake) notify(passed ...core.Block) {
	f.mu.Lock()
	listeners := slices.Clip(f.listeners)
	f.mu.Unlock()
	for _, b := range passed {
		for _, l := range listeners {
			l.Released(b)
		}
	}
}

func amount(b *fakeBlock) core.Amount {
	return core.Amount{Bytes: b.Bytes, Requested: b.Requested, Blocks: 1}
}

// Allocate returns a block at a fresh address. Requests that would take the
// fake above a tebibyte run out of memory.
func (f *Fake) Allocate(_ context.Context, r core.Request) (core.Block, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("Allocate", "%d %s%s", r.Bytes, r.Tag.OrUntagged(), map[bool]string{true: " isolated"}[r.Isolated]); err != nil {
		return core.Block{}, err
	}
	if err := r.Normalize("Allocate"); err != nil {
		return core.Block{}, err
	}
	if r.Isolated && f.granule == 0 {
		return core.Block{}, refuse.Unsupported("Allocate of an isolated block", "fake", "call Isolate first")
	}
	if err := f.checkStream("Allocate", r.Stream); err != nil {
		return core.Block{}, err
	}
	if r.Bytes > fakeCapacity-f.stats.Outstanding().Bytes {
		f.stats.Failures++
		return core.Block{}, &core.DriverError{Op: "fakeAlloc", Code: 2, Name: "FAKE_OUT_OF_MEMORY", Text: "out of memory", OutOfMemory: true}
	}
	return f.place(r), nil
}

func (f *Fake) place(r core.Request) core.Block {
	b := &fakeBlock{account: r.Account, Block: core.Block{
		ID:        core.BlockID{Ptr: f.next, Generation: core.NextGeneration(), AllocStream: r.Stream, Ordinal: f.ordinal},
		Requested: r.Requested, Bytes: r.Bytes, Align: core.DefaultAlign, Tag: r.Tag, State: core.Live,
	}}
	f.next += (r.Bytes + 511) / 256 * 256
	f.blocks[b.ID.Generation] = b
	f.stats.Allocations++
	f.stats.AllocatedBytes += b.Bytes
	f.stats.Live = f.stats.Live.Add(amount(b))
	if r.Withheld {
		f.withhold(b)
	} else {
		b.follow(1)
	}
	live := f.stats.Live.Sub(f.withheld)
	f.stats.PeakRequested = max(f.stats.PeakRequested, live.Requested)
	f.stats.PeakBytes = max(f.stats.PeakBytes, live.Bytes)
	f.stats.PeakOutstanding = max(f.stats.PeakOutstanding, f.stats.Outstanding().Bytes)
	return b.Block
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
	if b.withheld {
		f.withheld = f.withheld.Sub(amount(b))
	} else {
		b.follow(-1)
	}
	f.stats.Deallocations++
	f.stats.Live = f.stats.Live.Sub(amount(b))
	f.stats.Pending = f.stats.Pending.Add(amount(b))
	passed := f.queueFree(b, nil)
	result := b.Block
	f.mu.Unlock()
	f.notify(passed...)
	return result, nil
}

// queueFree queues the free of a retired block that no intent holds back, and
// appends it to passed if the device passes it at once.
func (f *Fake) queueFree(b *fakeBlock, passed []core.Block) []core.Block {
	if len(b.intents) > 0 {
		return passed
	}
	o := f.freeCounters[b.ID.AllocStream]
	o.Queued += b.Bytes
	f.freeCounters[b.ID.AllocStream] = o
	if f.immediate {
		return append(passed, f.forget(b.ID.Generation))
	}
	f.queue = append(f.queue, b.ID.Generation)
	return passed
}

// ReapPending is noted and releases nothing; see [Fake.Pass].
func (f *Fake) ReapPending(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begin("ReapPending", "")
}

// Drain passes all pending frees.
func (f *Fake) Drain(context.Context) error {
	f.mu.Lock()
	err := f.begin("Drain", "")
	f.mu.Unlock()
	if err == nil {
		f.Pass()
	}
	return err
}

// State is the block's state.
func (f *Fake) State(id core.BlockID) core.BlockState {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.blocks[id.Generation]; ok {
		return b.State
	}
	return core.Freed
}

// Stats is the fake's books.
func (f *Fake) Stats() core.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// FreedOn is the free counters of the stream.
func (f *Fake) FreedOn(id core.StreamID) core.FreeCounters {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.freeCounters[id]
}

// Subscribe adds a listener.
func (f *Fake) Subscribe(l core.Listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(f.listeners, l)
}

// Inspect tells of the blocks that are not released, oldest first, and of the
// unit of isolated ones.
func (f *Fake) Inspect() core.Inspector { return fakeInspector{core.Unsupported{}.Inspect(), f} }

type fakeInspector struct {
	core.Inspector
	fake *Fake
}

func (i fakeInspector) IsolationGranularity() uint64 { return i.fake.granularity() }

func (i fakeInspector) Blocks(yield func(core.BlockInfo) bool) {
	f := i.fake
	f.mu.Lock()
	infos := make([]core.BlockInfo, 0, len(f.blocks))
	for _, b := range f.blocks {
		infos = append(infos, core.BlockInfo{Block: b.Block})
	}
	f.mu.Unlock()
	slices.SortFunc(infos, func(a, b core.BlockInfo) int {
		return cmp.Compare(a.Block.ID.Generation, b.Block.ID.Generation)
	})
	for _, info := range infos {
		if !yield(info) {
			return
		}
	}
}

// Ordinal is the fake's device.
func (f *Fake) Ordinal() int { return f.ordinal }

// Features is use tracking in stream order, and isolation after Isolate.
func (f *Fake) Features() core.Features {
	features := core.UseTracking | core.StreamOrdered
	if f.granularity() != 0 {
		features |= core.Isolation
	}
	return features
}

// Unwrap is nil: the fake is a backend.
func (f *Fake) Unwrap() core.Resource { return nil }

// String is "fake:ordinal".
func (f *Fake) String() string { return fmt.Sprintf("fake:%d", f.ordinal) }

// Withhold takes a live block out of what the peaks of live memory are of.
func (f *Fake) Withhold(id core.BlockID, _ core.BlockState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.blocks[id.Generation]; ok && b.State == core.Live && !b.withheld {
		f.withhold(b)
		b.follow(-1)
	}
}

func (f *Fake) withhold(b *fakeBlock) {
	b.withheld = true
	f.withheld = f.withheld.Add(amount(b))
}

// follow tells the block's account that it is live (1) or no more (-1).
func (b *fakeBlock) follow(sign int64) {
	if b.account != nil {
		b.account.Change(sign*int64(b.Requested), sign*int64(b.Bytes), sign > 0)
	}
}
