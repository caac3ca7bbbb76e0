package cuda

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/quick"
)

// quickPool is what the pool serves of the quick path: an allocation for which the stream's own
// memory does, and the free of a block that only its own stream has used. Everything is done by the
// functions of the ordinary way.
type quickPool struct {
	r     *tracker
	lanes *lanes
}

// streamPart is the number of the stream itself among the parts of its lane: the backend's is the
// first.
const streamPart = 0

// spareBlocks is how many records a stream keeps for its next allocations.
const spareBlocks = 64

func newQuickPool(r *PoolResource) *quick.Path {
	path := quick.New(r, &quickPool{&r.tracker, r.lanes}, &r.tracker)
	if path.NewPart() != streamPart {
		panic("cuda: the stream is the first part of a lane")
	}
	return path
}

// Lane is that of the stream that the lease is on. One that may capture behind the runtime's back is
// never quick; and the books of adopted streams, which come and go, are common to all of them.
func (r *tracker) Lane(lease core.StreamID) *quick.Lane {
	if s := r.streams.table.leases.Load().find(lease); s != nil && !s.adopted && s.Handle() != 0 {
		return &s.host
	}
	return nil
}

// streamOf is the stream of an operation, which is locked.
func streamOf(o *quick.Op) *stream { return o.Lane.Part(streamPart).(*stream) }

// Allocate declines what has to ask the driver, other lanes, or whoever has the stream's lock.
func (q *quickPool) Allocate(o *quick.Op) bool {
	s := streamOf(o)
	if o.Request.Isolated || !s.books.HasSlack(&o.Request) || q.r.inMemory.Load() == memoryGone || !s.TryLock() {
		return false
	}
	ok := q.allocate(s, o)
	s.Unlock()
	o.Ended = monotime.Now()
	return ok
}

func (q *quickPool) allocate(s *stream, o *quick.Op) bool {
	if s.lane == nil || !s.AsksNobody() || s.Open() > 0 || s.frees.pendingFrees() > 0 {
		return false
	}
	req := &o.Request
	ready := s.PointAtHand(req.Stream)
	if ready == nil {
		return false
	}
	ptr, ok := s.lane.takeLocked(req.Bytes)
	if !ok {
		ready.Release()
		return false
	}
	s.calls.allocated++
	record := s.spareBlock()
	describe(&o.Block, req, ptr, q.r.streams.table.ordinal)
	record.fillLocked(s, &o.Block, req.Withheld, ready, req.Span)
	record.mu.Unlock()
	s.books.enter(&o.Block, record, req.Withheld) // short of nothing
	if q.lanes.oracle != nil {
		o.After = func(b core.Block) { q.lanes.tellBegin(s, b.ID.Ptr, b.Bytes) }
	}
	return true
}

// Deallocate declines a block that anything but its own stream may have to do with.
func (q *quickPool) Deallocate(o *quick.Op) bool {
	s := streamOf(o)
	b := s.books.blocks.Find(o.ID.Generation)
	if b == nil || o.ID.Ordinal != q.r.streams.table.ordinal || !s.TryLock() {
		return false
	}
	ok := s.AsksNobody() && s.frees.pendingFrees() == 0 && q.free(s, b, o)
	s.Unlock()
	if ok {
		q.r.listeners.ReleasedQuickly(o.Block)
	}
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
	s.keepSpare(b)
	return true
}

// spareBlock is a record for another block, locked; its stream must be locked. Who found the block that it
// was before may be looking at it still, and then another one does.
func (s *stream) spareBlock() *block {
	if last := len(s.spare) - 1; last >= 0 && s.spare[last].mu.TryLock() {
		b := s.spare[last]
		s.spare = s.spare[:last]
		return b
	}
	for {
		if b := blocks.Get().(*block); b.mu.TryLock() {
			return b
		}
	}
}

// keepSpare keeps the record of a block that is gone; the stream must be locked.
func (s *stream) keepSpare(b *block) {
	if len(s.spare) < spareBlocks {
		s.spare = append(s.spare, b)
		return
	}
	blocks.Put(b)
}
