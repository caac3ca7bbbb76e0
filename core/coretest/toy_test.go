package coretest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// toy is the fake with bytes, streams and memory that is reused as soon as
// the rules allow: just enough of a device to see that the device cases pass
// over right fences and fail over wrong ones. It fences without any finesse:
// every conflicting use on another stream is waited for.
type toy struct {
	*Fake
	bug toyBug

	mu      sync.Mutex
	arena   []byte
	top     uint64
	spare   map[uint64][]uint64 // passed memory by size, newest last
	streams map[core.StreamID]chan func()
	blocks  map[core.Generation]*toyBlock
	open    map[core.Ticket]toyLaunch
}

// toyLaunch is what the toy remembers of an open intent: the intent itself
// must not be read where another goroutine may be ending it.
type toyLaunch struct {
	stream core.StreamID
	uses   []core.Use
}

// toyBug is what a toy does wrong.
type toyBug int

const (
	noBug toyBug = iota
	prepareQueuesNoWaits
	freeForgetsReaders
	freeForgetsNewerReaders
	recordIsForgotten
	freeIgnoresItsStream
	readsAreSerialised
	reapBlocks
	drainIgnoresContext
)

const (
	toyBase     = 0x1000000
	toyCapacity = 64 * mib
)

// toyBlock maps a block of the fake, whose addresses are never reused, to the
// arena.
type toyBlock struct {
	virtual core.Block
	ptr     uint64
	size    uint64
	uses    []toyUse
	passed  chan struct{} // closed when the device passed the free; nil until it is queued
}

type toyUse struct {
	stream core.StreamID
	writes bool
	done   chan struct{}
}

func newToy(t testing.TB, bug toyBug) *toy {
	d := &toy{Fake: NewFake(0), bug: bug, arena: make([]byte, toyCapacity), spare: map[uint64][]uint64{},
		streams: map[core.StreamID]chan func(){}, blocks: map[core.Generation]*toyBlock{}, open: map[core.Ticket]toyLaunch{}}
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, ops := range d.streams {
			close(ops)
		}
		d.streams = nil
	})
	return d
}

func (d *toy) subject() Subject {
	return Subject{Resource: d, Features: d.Features(), Streams: d.Streams, Device: d, Capacity: toyCapacity}
}

func (d *toy) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	d.reap()
	if r.Bytes > toyCapacity {
		return core.Block{}, &core.DriverError{Op: "toyAlloc", Code: 2, Name: "TOY_OUT_OF_MEMORY", Text: "out of memory", OutOfMemory: true}
	}
	virtual, err := d.Fake.Allocate(ctx, r)
	if err != nil {
		return virtual, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	size := (r.Bytes + 255) / 256 * 256
	b := &toyBlock{virtual: virtual, size: size, ptr: toyBase + d.top}
	if spare := d.spare[size]; len(spare) > 0 {
		b.ptr, d.spare[size] = spare[len(spare)-1], spare[:len(spare)-1]
	} else if d.top += size; d.top > toyCapacity {
		panic("the toy's arena is too small for this suite")
	}
	d.blocks[virtual.ID.Generation] = b
	virtual.ID.Ptr = b.ptr
	return virtual, nil
}

// virtual translates a handle to the fake's address.
func (d *toy) virtual(id core.BlockID) core.BlockID {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b, ok := d.blocks[id.Generation]; ok {
		id.Ptr = b.virtual.ID.Ptr + (id.Ptr - b.ptr)
	}
	return id
}

func (d *toy) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	b, err := d.Fake.Deallocate(ctx, d.virtual(id))
	if err != nil {
		return b, err
	}
	d.queueFrees()
	b.ID.Ptr = id.Ptr
	return b, nil
}

// queueFrees queues on the device the frees that the fake has queued.
func (d *toy) queueFrees() {
	d.Fake.mu.Lock()
	queued := slices.Clone(d.queue)
	d.Fake.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range queued {
		if b := d.blocks[g]; b != nil && b.passed == nil {
			d.queueFree(b)
		}
	}
}

func (d *toy) queueFree(b *toyBlock) {
	if d.bug == freeIgnoresItsStream {
		b.passed = make(chan struct{})
		close(b.passed)
		return
	}
	for i, u := range b.uses {
		forgotten := d.bug == freeForgetsReaders && !u.writes || d.bug == freeForgetsNewerReaders && !u.writes && i > 1
		if !forgotten {
			d.wait(b.virtual.ID.AllocStream, u.done)
		}
	}
	b.passed = d.record(b.virtual.ID.AllocStream)
}

func (d *toy) ReapPending(ctx context.Context) error {
	if d.bug == reapBlocks {
		return d.Drain(ctx)
	}
	d.reap()
	return nil
}

// reap releases what the device has passed.
func (d *toy) reap() {
	d.mu.Lock()
	d.Fake.mu.Lock()
	var released []core.Block
	d.queue = slices.DeleteFunc(d.queue, func(g core.Generation) bool {
		b := d.blocks[g]
		if b == nil || !b.hasPassed() {
			return false
		}
		delete(d.blocks, g)
		d.spare[b.size] = append(d.spare[b.size], b.ptr)
		released = append(released, d.forget(g))
		return true
	})
	d.Fake.mu.Unlock()
	d.mu.Unlock()
	d.notify(released...)
}

func (b *toyBlock) hasPassed() bool {
	if b.passed == nil {
		return false
	}
	select {
	case <-b.passed:
		return true
	default:
		return false
	}
}

func (d *toy) Drain(ctx context.Context) error {
	if d.bug == drainIgnoresContext {
		ctx = context.Background()
	}
	d.mu.Lock()
	var pending []chan struct{}
	for _, b := range d.blocks {
		if b.passed != nil {
			pending = append(pending, b.passed)
		}
	}
	d.mu.Unlock()
	for _, passed := range pending {
		select {
		case <-passed:
		case <-ctx.Done():
			return fmt.Errorf("drain: %w", ctx.Err())
		}
	}
	d.reap()
	return nil
}

func (d *toy) Inspect() core.Inspector {
	return listing{d.Fake.Inspect(), func(yield func(core.BlockInfo) bool) {
		d.Fake.Inspect().Blocks(func(info core.BlockInfo) bool {
			d.mu.Lock()
			if b := d.blocks[info.Block.ID.Generation]; b != nil {
				info.Block.ID.Ptr = b.ptr
			}
			d.mu.Unlock()
			return yield(info)
		})
	}}
}

// listing is an inspector with another list of blocks.
type listing struct {
	core.Inspector
	blocks func(func(core.BlockInfo) bool)
}

func (l listing) Blocks(yield func(core.BlockInfo) bool) { l.blocks(yield) }

func TestToyDeviceConforms(t *testing.T) {
	Run(t, func(t *testing.T) Subject { return newToy(t, noBug).subject() })
}
