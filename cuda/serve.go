package cuda

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// serving is the backend's share of the one path. At once, under the lane's lock, it serves what needs no call of the
// driver: over the own pool an allocation for which the stream's own memory does, and the free of a block that only its own
// stream has used. All else is prepared without that lock: the block, or the free, is in the
// backend's books before the layers above hear of it.
type serving struct {
	path.Simple
	*tracker
}

// spareBlocks is how many records a stream keeps for its next allocations.
const spareBlocks = 64

// Path is that of the backend, for the layers of this module: see package path.
func (r *tracker) Path() *path.Path { return r.path }

// Allocate takes a block from the memory, in the order of req.Stream. It does not wait for the device. The
// block's readiness is its first write: uses on other streams wait for it. An error for want of memory of the runtime's own pool
// says what that holds. A request with Isolated set gets a mapping of its own instead, which may
// block in the driver; if the device maps no memory it is refused with an error that matches
// errors.ErrUnsupported.
func (r *tracker) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	err = r.path.Allocate(ctx, nil, &req, &b)
	return b, err
}

// Deallocate queues the free on the allocation stream and hands the block to pending. While uses
// on other streams are outstanding that the stream is not ordered after it is only retired, and no stream
// waits for them: a reap that sees them completed goes on. While a launch is announced
// on the block it is only retired: the last such launch to end queues the
// free, or leaves it to the next reap. While the allocation stream is capturing
// the block is only retired, too: a reap after the end of the capture queues the
// free.
func (r *tracker) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	err = r.path.Deallocate(ctx, nil, &id, &b)
	return b, err
}

// Lane is that of the stream that the lease is on. Adopted streams have none: they may capture behind the
// runtime's back, and as they come and go their books are common to all of them.
func (r *tracker) Lane(lease core.StreamID) *path.Lane {
	if s := r.streams.table.leases.Load().find(lease); s != nil && !s.adopted {
		return &s.host
	}
	return nil
}

// Record is that of a block of the lane's stream.
func (r *tracker) Record(l *path.Lane, g core.Generation) (*path.Record, any) {
	b := l.Part(path.BackendPart).(*stream).books.blocks.Find(g)
	if b == nil {
		return nil, nil
	}
	return &b.Record, b
}

// How far an operation has come that met the lock of its stream, by the number that the backend keeps in it.
const (
	metBusy = iota + 1
	hasWaited
)

// tryLock is the stream of an operation, with its lock, if the operation may be served at once: the stream is not
// busy, neither captures nor was given up, and no free waits with it.
func (r *tracker) tryLock(o *path.Op) *stream {
	s, _ := o.Lane.Part(path.BackendPart).(*stream)
	if s == nil || r.own == nil || o.NotAtOnce {
		return nil
	}
	if !s.TryLock() {
		o.KeepNumber(r.path, max(metBusy, o.Number(r.path)))
		return nil
	}
	return s.ifQuiet()
}

// ifQuiet is the stream, which is locked, if it neither captures nor was given up, and no free waits
// with it. Else it unlocks the stream, and is nil.
func (s *stream) ifQuiet() *stream {
	if s.Capturing() || s.IsGivenUp() || s.frees.pendingFrees() > 0 {
		s.Unlock()
		return nil
	}
	return s
}

// Allocate serves what is at hand, or what was prepared.
func (r serving) Allocate(o *path.Op) bool {
	if o.Got == r.path {
		return true
	}
	s := r.tryLock(o)
	if s == nil {
		return o.Decline(r.path)
	}
	o.AtOnce = r.takeAtHand(s, o)
	s.Unlock()
	if !o.AtOnce {
		return o.Decline(r.path)
	}
	if o.Timed {
		o.Ended = monotime.Now()
	}
	return true
}

// Deallocate serves the free of a block that nothing but its own stream may have to do with, or what was prepared.
func (r serving) Deallocate(o *path.Op) bool {
	if o.Got == r.path {
		return true
	}
	b, _ := o.Engine.(*block)
	if b == nil || o.ID.Ordinal != r.streams.table.ordinal {
		return o.Decline(r.path)
	}
	s := r.tryLock(o)
	if s == nil {
		return o.Decline(r.path)
	}
	o.AtOnce = r.giveAtHand(s, b, o)
	s.Unlock()
	if !o.AtOnce {
		return o.Decline(r.path)
	}
	if o.Timed {
		o.Ended = monotime.Now()
	}
	if r.listeners.OffPath() {
		o.Settles(r.path)
	}
	return true
}

// Prepare waits once for who holds the stream's lock; else it allocates or frees.
func (r serving) Prepare(_ context.Context, o *path.Op) (err error) {
	if o.Number(r.path) == metBusy {
		o.KeepNumber(r.path, hasWaited)
		s := o.Lane.Part(path.BackendPart).(*stream)
		s.Lock()
		defer s.Unlock()
		return nil
	}
	if o.Free {
		err = r.free(o)
	} else {
		err = r.allocate(o)
	}
	if err == nil {
		o.Ended, o.Got = monotime.Now(), r.path
	}
	return err
}

// Settle tells the listeners that are off the path of a block that was freed at once.
func (r serving) Settle(_ context.Context, o *path.Op, err error) error {
	if err == nil {
		r.listeners.ReleasedAtOnce(o.Block)
	}
	return err
}

func (r *tracker) takeAtHand(s *stream, o *path.Op) bool {
	if r.inMemory.Load() == memoryGone || s.arena == nil || o.Request.Isolated || !s.books.Cover(&o.Request) || s.Open() > 0 {
		return false
	}
	req := &o.Request
	ready := s.PointAtHand(req.Stream)
	if ready == nil {
		return false
	}
	ptr, ok := s.arena.takeLocked(req.Bytes)
	if !ok && o.Lane.SettleNow() {
		ptr, ok = s.arena.takeLocked(req.Bytes)
	}
	if !ok {
		ready.MayBeRecorded()
		ready.Release()
		return false
	}
	s.calls.allocated++
	o.Then = r.begin(s, req, ready)
	record := s.spareBlock(&r.streams.table.records)
	describe(&o.Block, req, ptr, r.streams.table.ordinal)
	record.fillLocked(s, &o.Block, req, ready)
	record.mu.Unlock()
	s.books.file(record)
	s.books.EnterCovered(&record.core, &record.entry)
	o.Record = &record.Record
	return true
}

func (r *tracker) giveAtHand(s *stream, b *block, o *path.Op) bool {
	if !b.mu.TryLock() {
		return false
	}
	if !r.isAlone(s, b, &o.ID) {
		b.mu.Unlock()
		return false
	}
	if r.own.oracle == nil {
		s.arena.giveLocked(s, b.core.ID.Ptr, b.core.Bytes)
		s.calls.noteFreed(b.core.Bytes)
	} else {
		own := s.arena
		o.Then = func(b core.Block) { r.own.tellEnd(own, s, b.ID.Ptr, b.Bytes) }
	}
	s.retire(b, &o.Block)
	s.keepRecord(&r.streams.table.records, b)
	return true
}

// begin ends the allocation of a block at hand, which ready is of, or returns what ends it once the
// lane is unlocked: an oracle must hear of the block before anything says that it is ready.
func (r *tracker) begin(s *stream, req *core.Request, ready *fence.Point) func(core.Block) {
	if r.own.oracle == nil {
		ready.MayBeRecorded()
		return nil
	}
	asked := *req
	return func(b core.Block) {
		r.own.tellBegin(s, b.ID.Ptr, b.Bytes)
		tellOwner(r.own.oracle, &asked, b.ID.Ptr)
		ready.MayBeRecorded()
	}
}

// isAlone reports whether id names a live block that only its own stream has to do with: it is free
// as soon as that is behind its uses. Stream and block are locked.
func (r *tracker) isAlone(s *stream, b *block, id *core.BlockID) bool {
	return b.stream == s && b.core.ID.AllocStream == id.AllocStream && !b.isIsolated() && !b.history.HasOpen() &&
		b.history.UsedOnlyOn(&s.Stream) && b.isLive(*id) && r.own.owns(s, b.core.ID.Ptr)
}

// retire takes a block out of the books that is freed at hand, and unlocks it. told is what its owner
// hears of it. Lane and stream are locked.
func (s *stream) retire(b *block, told *core.Block) {
	b.core.State = core.Retired
	*told = b.core
	told.State = core.Freed
	b.mu.Unlock()
	b.history.ReleaseOn(&s.Stream)
	s.freeAttempts++
	s.freedAtHand += b.core.Bytes
	s.books.leave(b)
}

// keepRecord keeps the record of a block that is gone for the stream's next allocations. The lane
// is locked.
func (s *stream) keepRecord(records *blockRecords, b *block) {
	if last := len(s.spare) - 1; last+1 < spareBlocks {
		s.spare = append(s.spare, b)
	} else { // another stream may use the record of an earlier free, but not yet this one: the layers above have to close it
		records.spare.Put(s.spare[last])
		s.spare[last] = b
	}
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
