package logging

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// PrepareUse forwards, and logs the launch at the level [Uses]: on success as
// the upstream prepared it, after a refusal as it was asked for.
func (r *Resource) PrepareUse(ctx context.Context, req core.UseRequest) (t core.Ticket, err error) {
	if !r.ops.has(oplog.OpPrepare) {
		return r.upstream.PrepareUse(ctx, req)
	}
	req.Launch = names.Bound(req.Launch)
	returned := false
	defer func() {
		if !returned && t.IsOpen() { // a sink panics, and nobody gets the ticket
			_ = r.upstream.AbortUse(ctx, t)
		}
	}()
	start := monotime.Now()
	t, err = r.upstream.PrepareUse(ctx, req)
	if returned = errors.Is(err, path.ErrDeclined); returned { // which is not asked of the device
		return t, err
	}
	took := monotime.Now().Since(start)
	var rec Record
	if err == nil {
		rec.describeIntent(t)
	} else {
		rec.describeUses(&req)
	}
	err = r.put(ctx, &rec, oplog.OpPrepare, start, took, err)
	returned = true
	return t, err
}

// FinishUse forwards, and logs the launch at the level [Uses].
func (r *Resource) FinishUse(ctx context.Context, t core.Ticket) error {
	if !r.ops.has(oplog.OpFinish) {
		return r.upstream.FinishUse(ctx, t)
	}
	start := monotime.Now()
	var rec Record
	rec.describeIntent(t) // before the upstream recycles the intent
	err := r.upstream.FinishUse(ctx, t)
	took := monotime.Now().Since(start)
	return r.put(ctx, &rec, oplog.OpFinish, start, took, err)
}

// AbortUse forwards, and logs the launch at the level [Uses].
func (r *Resource) AbortUse(ctx context.Context, t core.Ticket) error {
	if !r.ops.has(oplog.OpAbort) {
		return r.upstream.AbortUse(ctx, t)
	}
	start := monotime.Now()
	var rec Record
	rec.describeIntent(t) // before the upstream recycles the intent
	err := r.upstream.AbortUse(ctx, t)
	took := monotime.Now().Since(start)
	return r.put(ctx, &rec, oplog.OpAbort, start, took, err)
}

// PassesUses is for the layer above, which calls the upstream where nothing of them is logged: see
// package path.
func (r *Resource) PassesUses() (core.Resource, path.Uses) {
	if r.ops.has(oplog.OpPrepare) || r.ops.has(oplog.OpFinish) || r.ops.has(oplog.OpAbort) || r.ops.has(oplog.OpRecord) {
		return r, nil
	}
	return r, path.UsesOf(r.upstream)
}

// RecordUse forwards, and logs the block and the stream at the level [Uses].
func (r *Resource) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	if !r.ops.has(oplog.OpRecord) {
		return r.upstream.RecordUse(ctx, id, stream)
	}
	start := monotime.Now()
	err := r.upstream.RecordUse(ctx, id, stream)
	took := monotime.Now().Since(start)
	rec := Record{Event: oplog.Event{Stream: stream, Block: id, Access: core.ReadWrite, Uses: 1}}
	return r.put(ctx, &rec, oplog.OpRecord, start, took, err)
}

// describeIntent fills in an open launch. Of a ticket that is not open
// nothing may be read: its intent may already be another launch's.
func (rec *Record) describeIntent(t core.Ticket) {
	if !t.IsOpen() {
		return
	}
	in := t.Intent()
	uses := in.Uses
	rec.Event.Stream, rec.Event.Launch = in.Stream, in.Launch
	rec.Event.LaunchID, rec.Event.Uses, rec.Event.Waits = in.ID, len(uses), len(in.Waited)
	for i := range min(len(in.Waited), len(rec.Event.WaitedFor)) {
		rec.Event.WaitedFor[i] = in.Waited[i].For
	}
	for i := range uses {
		u := &uses[i]
		if i == 0 {
			rec.Event.Block, rec.Event.Tag = u.Block, u.Tag
		}
		rec.Event.Access = rec.Event.Access.Combine(u.Access)
		rec.Event.Elided += u.Elided
		rec.Event.Requested += u.Requested
		rec.Event.Bytes += u.Bytes
	}
}

// describeUses fills in a launch that was refused.
func (rec *Record) describeUses(req *core.UseRequest) {
	rec.Event.Stream, rec.Event.Launch, rec.Event.Uses = req.Stream, req.Launch, len(req.Uses)
	for i, u := range req.Uses {
		if i == 0 {
			rec.Event.Block = u.Block
		}
		rec.Event.Access = rec.Event.Access.Combine(u.Access)
	}
}

// released logs that a block left the upstream's books. It is an instant, so its
// duration is zero.
func (r *Resource) released(b core.Block) {
	at := monotime.Now()
	if r.ordinary(&b, b.ID.AllocStream, false) {
		for _, ring := range r.rings {
			ring.note(oplog.OpRelease, &b, at, 0)
		}
		return
	}
	rec := Record{Event: oplog.Event{Stream: b.ID.AllocStream}}
	rec.describe(&b)
	_ = r.put(context.Background(), &rec, oplog.OpRelease, at, 0, nil)
}
