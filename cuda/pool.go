package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/quick"
)

// PoolResource is the stream-ordered backend with a pool of the runtime's own, over memory
// that it maps: the original's PoolResource, the performance tier. It has the contract of
// [AsyncResource] and the same fences; blocks come from the memory of their stream without a
// call of the driver (docs/pool.md). All methods are safe for concurrent use, and work on
// different streams takes no common lock while their own memory lasts.
type PoolResource struct {
	tracker
	lanes *lanes
	path  *quick.Path
}

var _ core.Resource = (*PoolResource)(nil)

// addressFactor is how much more address space than memory the device has is reserved:
// memory may be free in pieces at most addresses, and still be mapped in a row.
const addressFactor = 3

// defaultTrimAfter is longer than the pauses of a service that is used: what it gives back
// it takes again at the price of mapping.
const defaultTrimAfter = 30 * time.Second

// PoolConfig configures a [PoolResource].
type PoolConfig struct {
	// Limit is how many bytes of the device the pool holds at most, rounded down to
	// pages; 0 means no limit. Isolated blocks are not the pool's.
	Limit uint64
	// TrimAfter is how long memory must have been free all the time before the pool gives its
	// wholly free pages back to the device, a few each ReapInterval; it takes up to twice as
	// long until they go. 0 means 30 s, negative that only TrimPool gives back. With a negative ReapInterval
	// nothing is given back by itself either.
	TrimAfter time.Duration
	// ReapInterval is the time between two looks at queued frees; 0 means
	// 10 ms, negative that only calls reap.
	ReapInterval time.Duration
	// IsolatedAddresses and IsolatedRanges are those of [AsyncConfig].
	IsolatedAddresses uint64
	IsolatedRanges    int
}

// NewPoolResource returns a backend that maps memory of drv's and shares it out, on
// the streams of streams. It must be closed. A device that maps no memory is refused with an
// error that matches errors.ErrUnsupported. A stream pool serves one resource, for good.
// It reserves addresses, which may block in the driver, and maps memory when there is need
// of it.
func NewPoolResource(drv driver.Driver, streams *StreamPool, cfg PoolConfig) (*PoolResource, error) {
	if err := needDevice("NewPoolResource", drv, streams); err != nil {
		return nil, err
	}
	props, err := drv.Properties()
	if err != nil {
		return nil, err
	}
	page := props.MapGranularity
	if page == 0 {
		return nil, fmt.Errorf("device %d (%s) maps no memory: use cuda.AsyncResource: %w", drv.Ordinal(), props.Name, errors.ErrUnsupported)
	}
	limit := cfg.Limit / page * page
	if cfg.Limit != 0 && limit == 0 {
		return nil, &core.InvalidRequestError{Op: "NewPoolResource", Field: "Limit", Reason: fmt.Sprintf("%d bytes are less than a page: say at least %d, or 0 for no limit", cfg.Limit, page)}
	}
	if err := streams.claimFor("NewPoolResource"); err != nil {
		return nil, err
	}
	l, err := newLanes(drv, page, (props.TotalBytes+page-1)/page*page*addressFactor, limit)
	if err != nil {
		streams.hasResource.Store(false)
		return nil, err
	}
	l.idle.after = cmp.Or(cfg.TrimAfter, defaultTrimAfter)
	r := &PoolResource{lanes: l}
	form := &quickPool{&r.tracker, l}
	r.path = quick.New(r, form, form)
	streams.table.records.OnPath = true
	r.init(r, "pool("+deviceName(drv)+")", drv, streams, l, props, cmp.Or(cfg.IsolatedAddresses, defaultIsolatedAddresses), cmp.Or(cfg.IsolatedRanges, defaultIsolatedRanges))
	if cfg.ReapInterval >= 0 {
		l.ahead.start = func(f func() error) { go func() { _ = r.withMemory("NewPoolResource", f) }() }
	}
	r.startReaper(cfg.ReapInterval)
	return r, nil
}

// Allocate takes a block from the memory of req.Stream, or of others, or maps more; it does
// not wait for the device. The block's readiness is its first write: uses on other streams
// wait for it. An error for want of memory says what the pool holds. A request with Isolated
// set gets a mapping of its own, as with [AsyncResource].
func (r *PoolResource) Allocate(_ context.Context, req core.Request) (b core.Block, err error) {
	err = r.allocate(&req, &b) // a promoted method would copy both once more
	return b, err
}

// QuickPath is that of the backend, for the layers of this module: see package quick.
func (r *PoolResource) QuickPath() *quick.Path { return r.path }

// SetLimit changes [PoolConfig].Limit. What the pool holds beyond it is not taken back: see
// TrimPool. Zero means no limit.
func (r *PoolResource) SetLimit(bytes uint64) { r.lanes.store.SetLimit(bytes) }

// quickPool is what the pool serves of the quick path: an allocation for which the stream's own
// memory does, and the free of a block that only its own stream has used. Everything is done by the
// functions of the ordinary way.
type quickPool struct {
	r     *tracker
	lanes *lanes
}

// spareBlocks is how many records a stream keeps for its next allocations.
const spareBlocks = 64

// Lane is that of the stream that the lease is on. One that may capture behind the runtime's back is
// never quick; and the books of adopted streams, which come and go, are common to all of them.
func (q *quickPool) Lane(lease core.StreamID) *quick.Lane {
	if s := q.r.streams.table.leases.Load().find(lease); s != nil && !s.adopted && s.Handle() != 0 {
		return &s.host
	}
	return nil
}

// Record is that of a block of the lane's stream.
func (q *quickPool) Record(l *quick.Lane, g core.Generation) (*path.Record, any) {
	b := l.Part(quick.BackendPart).(*stream).books.blocks.Find(g)
	if b == nil {
		return nil, nil
	}
	return &b.Record, b
}

// streamOf is the stream of an operation, which is locked.
func streamOf(o *quick.Op) *stream { return o.Lane.Part(quick.BackendPart).(*stream) }

// tryLock locks the stream, or the operation lacks that.
func (q *quickPool) tryLock(s *stream, o *quick.Op) bool {
	if s.TryLock() {
		return true
	}
	o.Lacks = q
	return false
}

// Prepare waits for the holder of the stream's lock.
func (q *quickPool) Prepare(l *quick.Lane) bool {
	s := l.Part(quick.BackendPart).(*stream)
	s.Lock()
	defer s.Unlock() //nolint:gocritic // without it the section would be reported as empty
	return true
}

// Allocate declines what has to ask the driver, other lanes, or the holder of the stream's lock.
func (q *quickPool) Allocate(o *quick.Op) bool {
	s := streamOf(o)
	if o.Request.Isolated || !s.books.Cover(&o.Request) || !q.tryLock(s, o) {
		return false
	}
	ok := q.allocate(s, o)
	s.Unlock()
	o.Ended = monotime.Now()
	return ok
}

func (q *quickPool) allocate(s *stream, o *quick.Op) bool {
	if q.r.inMemory.Load() == memoryGone || s.lane == nil || !s.AsksNobody() || s.Open() > 0 || s.frees.pendingFrees() > 0 {
		return false
	}
	req := &o.Request
	ready := s.PointAtHand(req.Stream)
	if ready == nil {
		return false
	}
	ptr, ok := s.lane.takeLocked(req.Bytes)
	if !ok {
		ready.MayBeRecorded()
		ready.Release()
		return false
	}
	s.calls.allocated++
	if q.lanes.oracle == nil {
		ready.MayBeRecorded()
	} else { // which must hear of the block before whatever says that it is ready
		withheld := req.Withheld
		o.After = func(b core.Block) {
			q.lanes.tellBegin(s, b.ID.Ptr, b.Bytes)
			if withheld {
				q.lanes.oracle.BlockIsTracked(b.ID.Ptr, false)
			}
			ready.MayBeRecorded()
		}
	}
	record := s.spareBlock(&q.r.streams.table.records)
	describe(&o.Block, req, ptr, q.r.streams.table.ordinal)
	record.fillLocked(s, &o.Block, req, ready)
	record.mu.Unlock()
	s.books.enter(record) // short of nothing
	o.Record = &record.Record
	return true
}

// Deallocate declines a block that anything but its own stream may have to do with.
func (q *quickPool) Deallocate(o *quick.Op) bool {
	s, b := streamOf(o), o.Engine.(*block)
	if o.ID.Ordinal != q.r.streams.table.ordinal || !q.tryLock(s, o) {
		return false
	}
	ok := s.AsksNobody() && s.frees.pendingFrees() == 0 && q.free(s, b, o)
	s.Unlock()
	o.Hear[0] = &q.r.listeners
	o.Ended = monotime.Now()
	return ok
}

func (q *quickPool) free(s *stream, b *block, o *quick.Op) bool {
	if !b.mu.TryLock() {
		return false
	}
	if b.stream != s || b.core.ID.AllocStream != o.ID.AllocStream || b.isIsolated() || b.history.HasOpen() || !b.history.UsedOnlyOn(&s.Stream) ||
		b.check("Deallocate", o.ID, o.ID.AllocStream) != nil || !q.lanes.owns(s, b.core.ID.Ptr) {
		b.mu.Unlock()
		return false
	}
	if q.lanes.oracle == nil {
		s.lane.giveLocked(s, b.core.ID.Ptr, b.core.Bytes)
	} else {
		own := s.lane
		o.After = func(b core.Block) { q.lanes.tellEnd(own, s, b.ID.Ptr, b.Bytes) }
	}
	b.core.State = core.Retired
	o.Block = b.core
	o.Block.State = core.Freed
	b.mu.Unlock()
	b.history.Release()
	s.freeAttempts++
	s.calls.freed++
	s.calls.freedBytes += b.core.Bytes
	s.frees.bytes.noteAtOnce(b.core.Bytes)
	s.books.leave(b)
	if len(s.spare) < spareBlocks {
		s.spare = append(s.spare, b)
	} else {
		q.r.streams.table.records.spare.Put(b)
	}
	return true
}

// spareBlock is a record for another block, locked; its stream must be locked. Who found the block that it
// was before may be looking at it still, and then another one does.
func (s *stream) spareBlock(records *blockRecords) *block {
	if last := len(s.spare) - 1; last >= 0 {
		b := s.spare[last]
		s.spare = s.spare[:last]
		if records.Fits(&b.Record) && b.mu.TryLock() {
			return b
		}
	}
	for {
		if b := records.get(); b.mu.TryLock() {
			return b
		}
	}
}
