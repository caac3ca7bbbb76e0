package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/internal/books"
	"github.com/fencepost-gpu/fencepost/cuda/internal/vmm"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/listeners"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// tracker is all of a stream-ordered backend except its memory source:
// blocks and books, uses and their fences, frees until they are released.
type tracker struct {
	// owner is the backend, as tickets name it.
	owner   core.Resource
	name    string
	streams *StreamPool

	path   *path.Path
	memory memory
	// own is the memory if it is the runtime's own pool, else nil.
	own *arenas
	// atOnce is the memory's giveAtOnce.
	atOnce bool
	// inMemory is how many are in a call of the memory's that closing it must not
	// overtake, or memoryGone.
	inMemory atomic.Int64

	// mapper maps the isolated blocks, of which isolated came into the books, or are about
	// to, with isolatedBytes.
	mapper *vmm.Mapper
	// share bounds what memory and mapper hold together.
	share                   share
	isolated, isolatedBytes atomic.Int64

	// oracle is told what launches declare, if the device has one.
	oracle driver.Oracle

	// times are nil if nobody asks for them.
	times *deviceTimes

	// windows are the peaks of windows of time.
	windows   *books.Windows
	listeners listeners.List
	backlog   captureBacklog

	reaperStop chan struct{}
	reaperDone chan struct{}
	stopReaper func()

	// closing holds who closes.
	closing chan struct{}
}

// init makes r, which is zero, the tracker of a backend over a source of memory. The caller
// starts the reaper.
func (r *tracker) init(owner core.Resource, name string, drv driver.Driver, streams *StreamPool, m memory, props driver.Properties, isolatedAddresses uint64) {
	r.owner, r.name, r.streams, r.memory, r.atOnce = owner, name, streams, m, m.giveAtOnce()
	r.path = path.New(owner, serving{tracker: r}, keeping{r})
	r.path.Room().Join(owner, owner)
	r.oracle = driver.OracleOf(drv)
	r.times = newDeviceTimes(drv, streams.table, streams.deviceWork, streams.timeOneIn)
	if r.own != nil {
		r.own.times = r.times
	}
	r.windows = books.NewWindows(&streams.table.group, time.Now())
	r.mapper = vmm.New(drv, props.MapGranularity, isolatedAddresses)
	r.share.allStreams = func() uint64 { return uint64(len(streams.table.streams())) }
	r.share.live = func() uint64 { return r.inBooks().Live.Blocks }
	r.share.isolated, r.mapper.Room = r.mapper.Mapped, r.mayIsolate
	m.bind(r)
	r.reaperStop, r.reaperDone, r.closing = make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	r.stopReaper = sync.OnceFunc(func() { close(r.reaperStop) })
}

// allocate makes the block of an operation.
func (r *tracker) allocate(o *path.Op) error {
	req := &o.Request
	if err := r.refuseClosed("Allocate"); err != nil {
		return err
	}
	s, err := r.streams.table.resolve("Allocate", req.Stream)
	if err != nil {
		return err
	}
	if req.Isolated {
		return r.allocateIsolated(s, o)
	}
	ptr, ready, done, err := r.allocateOn(s, req)
	if err != nil {
		s.books.Fails.Add(1)
		return err
	}
	record := r.streams.table.records.get()
	describe(&o.Block, req, ptr, r.streams.table.ordinal)
	record.fill(s, &o.Block, req, ready)
	s.books.admit(&r.streams.table.group, record)
	o.Record, o.Got = &record.Record, r.path
	if r.oracle != nil {
		tellOwner(r.oracle, req, ptr)
	}
	r.releaseCompleted(done)
	return nil
}

// describe makes b a live block for req at ptr. The memory was taken before, so that the generation is larger
// than that of its former block; see [core.Generation].
func describe(b *core.Block, req *core.Request, ptr uint64, ordinal int) {
	b.ID = core.BlockID{Ptr: ptr, Generation: core.NextGeneration(), AllocStream: req.Stream, Ordinal: ordinal}
	b.Requested, b.Bytes, b.Align = req.Requested, req.Bytes, core.DefaultAlign
	b.Tag, b.State = req.Tag, core.Live
}

// tellOwner tells an oracle what the program has of a new block.
func tellOwner(o driver.Oracle, req *core.Request, ptr uint64) {
	if req.Withheld {
		o.BlockIsOwned(ptr, ptr, 0)
		return
	}
	o.BlockIsOwned(ptr, ptr+req.Before, req.Requested)
}

// allocateOn is one step under the stream's lock: the allocation and the
// point that it is ready behind, with what is to be released then. An isolated one is only refused there for what others are,
// and does its share of the work. While the memory makes room the lock is not held.
func (r *tracker) allocateOn(s *stream, req *core.Request) (uint64, *fence.Point, *reapBatch, error) {
	for {
		s.Lock()
		done := r.takeSome(s)
		ptr, ready, err := r.allocateLocked(s, req)
		s.Unlock()
		if err == nil {
			return ptr, ready, done, nil
		}
		if r.releaseCompleted(done); !errors.Is(err, core.ErrOutOfMemory) {
			return 0, nil, nil, err
		}
		if err := r.withMemory("Allocate", func() error { return r.memory.makeRoom(s, req, err) }); err != nil {
			return 0, nil, nil, err
		}
	}
}

func (r *tracker) allocateLocked(s *stream, req *core.Request) (uint64, *fence.Point, error) {
	if err := r.refuseClosed("Allocate"); err != nil { // who closes waits for the lock behind that
		return 0, nil, err
	}
	if s.IsGivenUp() {
		return 0, nil, givenUpError("Allocate", req.Stream)
	}
	if !r.isAtHand(s, req) {
		if err := s.RefuseCaptured("Allocate", req.Stream); err != nil {
			return 0, nil, err
		}
	}
	if req.Isolated {
		return 0, nil, nil
	}
	ready, reserve, err := s.PointForAllocation(req.Stream)
	if err != nil {
		return 0, nil, err
	}
	ptr, err := r.memory.take(s, req.Bytes)
	if err != nil {
		if reserve != nil {
			reserve.Release()
		}
		return 0, nil, err
	}
	s.calls.allocated++
	ready = s.ConfirmReadyPoint(ready, reserve)
	if s.Open() > 0 {
		_ = s.Flush() // a wait that needs it tries again
	}
	return ptr, ready, nil
}

// isAtHand reports whether an allocation on the default stream enqueues nothing: its own memory does. s is locked.
func (r *tracker) isAtHand(s *stream, req *core.Request) bool {
	return s.isDefault() && r.own != nil && !req.Isolated && s.arena != nil && s.arena.hasRoom(req.Bytes)
}

// allocateIsolated maps memory for req at addresses of its own. That may block in the
// driver, so no lock is held meanwhile: launches on the stream go on. The calls are the
// host's, so the block is ready for every stream when it returns, and no access stands for
// that. Its free waits in the stream's queue like any other, but an unmap respects no stream's
// order, so it comes after the free is completed, and nothing is queued on the device but
// the waits for other streams.
func (r *tracker) allocateIsolated(s *stream, o *path.Op) error {
	req := &o.Request
	if r.mapper.Granularity() == 0 {
		return refuse.Unsupported("Allocate of an isolated block", r.String(), isolationAdvice)
	}
	_, _, done, err := r.allocateOn(s, req)
	if err != nil {
		s.books.Fails.Add(1)
		return err
	}
	r.releaseCompleted(done)
	_ = r.unmapCompleted(s, unmapAtOnce) // the next reap tells
	_ = r.reapMapper()
	at, err := r.mapper.Map(req.Bytes, r.relieve)
	if err != nil {
		s.books.Fails.Add(1)
		return r.explainIsolated(req, err)
	}
	if r.oracle != nil {
		tellOwner(r.oracle, req, at.Ptr)
	}
	record := r.streams.table.records.get()
	describe(&o.Block, req, at.Ptr, r.streams.table.ordinal)
	record.fillMapped(s, &o.Block, req, at.Bytes)
	// The books must be the last to hear of any allocation, and the count comes before the
	// bytes: so whatever is on its way is lacking in the books, and nothing on its way makes
	// up for something else. See census.
	r.isolated.Add(1)
	r.isolatedBytes.Add(int64(o.Block.Bytes))
	s.books.admit(&r.streams.table.group, record)
	o.Record = &record.Record
	return nil
}

// reapMapper is the mapper's share of a reap: after Close no later reap gives back what it
// would keep now.
func (r *tracker) reapMapper() error {
	if r.inMemory.Load() == memoryGone {
		return r.mapper.Close()
	}
	return r.mapper.Reap()
}

const isolationAdvice = "the device or its driver maps no memory: ask Features for core.Isolation first"

// relieve gives up what the device has completed and what the memory has free, for a mapping of so
// many bytes that finds the device full, or the share: then the memory keeps what leaves room.
func (r *tracker) relieve(bytes uint64) error {
	for _, s := range r.streams.table.streams() {
		_ = r.unmapCompleted(s, unlimited) // the next reap tells
	}
	keep := uint64(0)
	if bound, others := r.share.bound(), r.mapper.Mapped()+bytes; bound != noBound && r.memory.held()+others > bound {
		keep = bound - min(bound, others)
	}
	return r.withMemory("Allocate", func() error { return r.memory.trim(keep) })
}

// Reserve is not a backend's: it needs a budget.
func (r *tracker) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	return core.Unsupported{Resource: r.String()}.Reserve(ctx, bytes, tag)
}

// ReleaseClaim is not a backend's: it needs a budget.
func (r *tracker) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	return core.Unsupported{Resource: r.String()}.ReleaseClaim(ctx, id)
}

// Ordinal is the device's.
func (r *tracker) Ordinal() int { return r.streams.table.ordinal }

// Features is use tracking in stream order, isolation if the device maps memory, and ordered
// release if the memory is the runtime's own.
func (r *tracker) Features() core.Features {
	f := core.UseTracking | core.StreamOrdered
	if r.atOnce {
		f |= core.OrderedRelease
	}
	if r.mapper.Granularity() != 0 {
		f |= core.Isolation
	}
	return f
}

// SharedRecords are those of the layers above: see package path.
func (r *tracker) SharedRecords() (core.Resource, *path.Records) {
	return r.owner, r.streams.table.records.Records
}

// Subscribe adds a listener for released blocks.
func (r *tracker) Subscribe(l core.Listener) { r.listeners.Add(l) }

// Unwrap is nil: this is a backend.
func (r *tracker) Unwrap() core.Resource { return nil }

// String is "async(sim:0)".
func (r *tracker) String() string { return r.name }

// driverMoment is what calls of the driver that take no time are given when ctx
// has ended already: plenty, unless the driver does not answer.
const driverMoment = time.Second

// Close stops the reaper, waits for pending frees until ctx ends, gives back the
// addresses that isolated blocks left, and closes the memory's source; with a context that
// has ended it does the same without waiting. Live blocks stay
// valid until they are freed, which the device's context does at the latest.
// After a driver's error, while frees wait for the end of a capture, and where a call of
// the driver does not return until ctx ends, Close may be called again; after it
// has ended a further one does nothing, and allocating and trimming are refused
// with [core.ErrClosed].
func (r *tracker) Close(ctx context.Context) error {
	r.stopReaper() // also where another call closes, however little time there is
	if !r.claimClose(ctx) {
		return fmt.Errorf("closing the resource: another call has not ended it: %w", ctx.Err())
	}
	defer func() { <-r.closing }()
	if r.inMemory.Load() == memoryGone {
		return nil
	}
	if err := r.endReaper(ctx); err != nil {
		return err
	}
	err := r.Drain(ctx)
	if err != nil && (ctx.Err() == nil || r.waitingForCaptures() > 0) {
		return err
	}
	if timesErr := r.times.close(); timesErr != nil {
		return cmp.Or(err, timesErr)
	}
	if isolatedErr := r.mapper.Close(); isolatedErr != nil {
		return cmp.Or(err, isolatedErr)
	}
	return cmp.Or(err, r.closeMemory(ctx))
}

// claimClose takes the right to close, or answers false if another call has it
// until ctx ends. A free right is taken whether ctx has ended or not.
func (r *tracker) claimClose(ctx context.Context) bool {
	select {
	case r.closing <- struct{}{}:
		return true
	default:
	}
	select {
	case r.closing <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// endReaper waits for the reaper, which was stopped. It may be in a call of the
// driver.
func (r *tracker) endReaper(ctx context.Context) error {
	select {
	case <-r.reaperDone:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-r.reaperDone:
		return nil
	case <-time.After(driverMoment):
		return fmt.Errorf("closing the resource: the driver does not answer the reaper: %w", ctx.Err())
	}
}
