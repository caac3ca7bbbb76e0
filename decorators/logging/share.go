package logging

import (
	"context"
	"errors"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// share is the log's share of the path: what was served is noted in the rings under the lane's lock, if that is all there
// is to say, and else put when the operation has ended.
type share struct {
	path.Simple
	r *Resource
}

// Path is the layer's, for the layers of this module: see package path.
func (r *Resource) Path() *path.Path { return r.path }

// SharedRecords are the upstream's, for the layers above: see package path.
func (r *Resource) SharedRecords() (core.Resource, *path.Records) {
	return r, r.path.Below.Shared(r.upstream)
}

// Allocate logs the block.
func (s share) Allocate(o *path.Op) bool {
	if !s.r.path.Below.Layer.Allocate(o) {
		return false
	}
	s.log(o)
	return true
}

// Deallocate logs the block that was given back.
func (s share) Deallocate(o *path.Op) bool {
	if s.r.sequence != nil && s.r.ops.has(oplog.OpDeallocate) && o.Number(s.r.path) == 0 {
		o.KeepNumber(s.r.path, s.r.sequence.next())
	}
	if !s.r.path.Below.Layer.Deallocate(o) {
		return false
	}
	s.log(o)
	return true
}

func operationOf(o *path.Op) (oplog.Op, core.StreamID) {
	if o.Free {
		return oplog.OpDeallocate, o.ID.AllocStream
	}
	return oplog.OpAllocate, o.Request.Stream
}

// ordinary reports whether the block is all there is to say of an operation: one asked of its stream and device, in
// no trace that is sampled, and without a sink that numbers it.
func (r *Resource) ordinary(b *core.Block, stream core.StreamID, traced bool) bool {
	return r.sequence == nil && b.ID.AllocStream == stream && b.ID.Ordinal == r.ordinal && !traced
}

// ordinary is the log's share of ordinary operations: they are noted in the rings.
func (s share) ordinary() *path.Ordinary {
	r := s.r
	return &path.Ordinary{
		Expects:   s.expects,
		Allocated: func(o *path.Step) { r.noteOrdinary(oplog.OpAllocate, o) },
		Freed:     func(o *path.Step) { r.noteOrdinary(oplog.OpDeallocate, o) },
	}
}

func (r *Resource) noteOrdinary(op oplog.Op, o *path.Step) {
	if r.ops.has(op) {
		for i, p := range o.Lane.Part(r.path.Number()).([]*stripe) {
			p.note(r.rings[i], op, &o.Block, o.Began, o.Took)
		}
	}
}

// expects is without a bound if there are no sinks but rings, in which the lane has its stripes.
func (s share) expects(l *path.Lane) int64 {
	logs := s.r.ops.has(oplog.OpAllocate) || s.r.ops.has(oplog.OpDeallocate)
	if logs && (s.r.sequence != nil || l.Part(s.r.path.Number()) == nil) {
		return 0
	}
	return math.MaxInt64
}

func (s share) log(o *path.Op) {
	r := s.r
	op, stream := operationOf(o)
	if !r.ops.has(op) {
		return
	}
	stripes, _ := o.Lane.Part(r.path.Number()).([]*stripe)
	if stripes == nil || !r.ordinary(&o.Block, stream, o.Traced) {
		o.Settles(r.path)
		return
	}
	took := o.Took()
	for i, ring := range r.rings {
		stripes[i].note(ring, op, &o.Block, o.Began, took)
	}
}

// Settle puts what was not noted, and gives a lane stripes of its own.
func (s share) Settle(ctx context.Context, o *path.Op, err error) error {
	op, stream := operationOf(o)
	if !s.r.ops.has(op) || errors.Is(err, path.ErrAbandoned) {
		return err
	}
	if err == nil && s.r.ordinary(&o.Block, stream, o.Traced) {
		for _, ring := range s.r.rings {
			ring.note(op, &o.Block, o.Began, o.Took())
		}
		if s.mayEquip(o.Lane) {
			s.equip(o.Lane)
		}
		return nil
	}
	rec := Record{Event: oplog.Event{Stream: stream}, Seq: o.Number(s.r.path)}
	switch {
	case err == nil:
		rec.describe(&o.Block)
	case o.Free:
		rec.Event.Block = o.ID
	default:
		rec.describeFailed(&o.Request)
	}
	took := o.Took()
	if err != nil {
		took = monotime.Now().Since(o.Began)
	}
	return s.r.put(ctx, &rec, op, o.Began, took, err)
}

// mayEquip reports whether a lane without stripes gets some: if it is a stream's own, and the rings have room.
func (s share) mayEquip(l *path.Lane) bool {
	if l.Part(path.BackendPart) == nil {
		return false
	}
	for _, ring := range s.r.rings {
		if ring.crowded.Load() {
			return false
		}
	}
	return len(s.r.rings) > 0
}

// equip gives a lane stripes, one of each ring.
func (s share) equip(l *path.Lane) {
	if !s.r.equipping.CompareAndSwap(false, true) {
		return // another goroutine is about it, maybe for this lane
	}
	defer s.r.equipping.Store(false)
	l.Lock()
	has := l.Part(s.r.path.Number()) != nil
	l.Unlock()
	if has {
		return
	}
	of := make([]*stripe, len(s.r.rings))
	for i, ring := range s.r.rings {
		if of[i] = ring.ofLane(l); of[i] == nil {
			return // the next one tries again
		}
	}
	l.Lock()
	defer l.Unlock()
	l.SetPart(s.r.path.Number(), of)
}
