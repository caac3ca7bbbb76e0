package debugguard

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// PrepareUse opens the intent at the upstream. A use of a block that was
// freed is refused with a [core.UseAfterFreeError] and found as a stale
// handle; a pointer outside a guarded block is a [core.StreamMisuseError]. An
// upstream that tracks no uses refuses them itself.
func (r *Resource) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	if r.gate.Load() == 0 || !r.tracked {
		return r.upstream.PrepareUse(ctx, req)
	}
	o := openLaunches.Get().(*openLaunch)
	o.began = r.launches.now()
	err := r.hold(o, req)
	if err == nil {
		err = r.sealedUses(ctx, req)
	}
	if err != nil {
		r.letGo(ctx, o)
		return core.Ticket{}, err
	}
	t, err := r.prepare(ctx, req)
	if err != nil {
		r.letGo(ctx, o)
		return t, err
	}
	r.delay(ctx, req.Stream)
	o.begin(t.Intent())
	if err := r.noteUses(o, t.Intent()); err != nil { // freed while this call waited
		r.retract(o)
		_ = r.upstream.AbortUse(ctx, t) // nothing was enqueued; what to tell is the use after free
		r.letGo(ctx, o)
		return core.Ticket{}, err
	}
	if len(o.held) == 0 && !r.hunting(bisecting) {
		r.logLaunch(o) // its end will not be noticed
		o.recycle()
		return t, nil
	}
	r.open.put(t, o)
	return t, nil
}

// FinishUse closes the intent. A free that waited for it is done now, for
// which the caller pays but of whose failure it is not told: the block is
// kept and the free tried again.
func (r *Resource) FinishUse(ctx context.Context, t core.Ticket) error {
	o, err := r.take("FinishUse", t)
	if err != nil {
		return err
	}
	if o == nil {
		return r.upstream.FinishUse(ctx, t)
	}
	r.noteSpans(o, t.Intent())
	err = r.upstream.FinishUse(ctx, t) // spends the ticket, also if it fails
	r.open.drop(t)
	r.logLaunch(o)
	r.bisect(ctx, o)
	r.letGo(ctx, o)
	return err
}

// AbortUse closes the intent of a launch that was not enqueued, and forgets
// that it used its blocks.
func (r *Resource) AbortUse(ctx context.Context, t core.Ticket) error {
	o, err := r.take("AbortUse", t)
	if err != nil {
		return err
	}
	if o == nil {
		return r.upstream.AbortUse(ctx, t)
	}
	err = r.upstream.AbortUse(ctx, t) // spends the ticket, also if it fails
	r.open.drop(t)
	r.retract(o)
	r.letGo(ctx, o)
	return err
}

// RecordUse notes the use and passes it on. Errors are those of PrepareUse.
func (r *Resource) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	if r.gate.Load() == 0 || !r.tracked {
		return r.upstream.RecordUse(ctx, id, stream)
	}
	rec, err := r.usable("RecordUse", id, stream)
	if err != nil {
		return err
	}
	if rec != nil {
		rec.mu.Unlock()
	}
	if err := r.upstream.RecordUse(ctx, id, stream); err != nil {
		return err
	}
	use := core.UseRecord{Stream: stream, Access: core.ReadWrite}
	if rec := r.ledger.lock(id.Generation); rec != nil {
		rec.note(use)
		rec.mu.Unlock()
	}
	r.logLaunch(&openLaunch{use: use, began: r.launches.now()})
	return nil
}

// take returns what is known of the launch of a ticket that is to be ended,
// or nil. It refuses a ticket that somebody else is ending.
func (r *Resource) take(op string, t core.Ticket) (*openLaunch, error) {
	if r.gate.Load() == 0 {
		return nil, nil
	}
	o, taken := r.open.take(t)
	if taken {
		return nil, &core.StreamMisuseError{Op: op, Reason: "the ticket is being ended by another call: each ticket is finished or aborted once"}
	}
	return o, nil
}
