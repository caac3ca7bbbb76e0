package debugguard

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/ownwork"
)

// PrepareUse opens the intent at the upstream. A use of a block that was
// freed is refused with a [core.UseAfterFreeError] and found as a stale
// handle, or as a reuse race if its memory is another block's by now; a
// pointer outside a guarded block is a [core.StreamMisuseError]. A read of a
// block that nothing has written, and a pointer into a block that the launch
// does not declare, are found, and refused with a [core.StreamMisuseError] if
// [Config.Refuse] says so. An upstream that tracks no uses refuses them
// itself.
func (r *Resource) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	if r.gate.Load() == 0 || !r.tracked {
		return r.upstream.PrepareUse(ctx, req)
	}
	req.Launch = core.BoundName(req.Launch)
	o := openLaunches.Get().(*openLaunch)
	o.began, o.readsOnly = r.launches.now(), req.Mark == ownwork.ReadsOnly
	err := r.pin(o, &req)
	if err == nil {
		err = r.sealedUses(ctx, &req)
	}
	if err == nil && r.cfg.Refuse {
		err = r.refuse(o, &req)
	}
	if err != nil {
		r.unpin(ctx, o)
		return core.Ticket{}, err
	}
	t, err := r.prepare(ctx, req)
	if err != nil {
		r.unpin(ctx, o)
		return t, r.refused(err, late{op: "PrepareUse", stream: req.Stream, launch: req.Launch})
	}
	r.delay(ctx, req.Stream)
	r.begin(o, t.Intent())
	if err := r.noteUses(o, t.Intent()); err != nil { // freed while this call waited
		return core.Ticket{}, r.withdraw(ctx, t, o, err)
	}
	if len(req.Pointers) > 0 && !r.cfg.Refuse {
		_ = r.checkPointers(o, &req) // prepared: the errors are the findings'
	}
	entered := r.enter(t, o)
	if err := r.sealedUses(ctx, &req); err != nil { // sealed since it was asked
		if entered {
			r.open.drop(t)
		}
		return core.Ticket{}, r.withdraw(ctx, t, o, err)
	}
	if !entered {
		o.recycle()
	}
	return t, nil
}

// enter makes a prepared launch one whose end will be noticed, if it must be.
func (r *Resource) enter(t core.Ticket, o *openLaunch) bool {
	if len(o.known) == 0 && !r.hunting(bisecting) {
		r.logLaunch(o)
		return false
	}
	if !o.guarded && r.Mode() < Sample {
		return false
	}
	r.open.put(t, o)
	return true
}

// withdraw takes a launch back of which nothing was enqueued, and returns why.
func (r *Resource) withdraw(ctx context.Context, t core.Ticket, o *openLaunch, why error) error {
	r.retract(o)
	_ = r.upstream.AbortUse(ctx, t)
	r.unpin(ctx, o)
	return why
}

// FinishUse closes the intent. A free that waited for it is done now, for
// which the caller pays but of whose failure it is not told: the block is
// kept and the free tried again.
func (r *Resource) FinishUse(ctx context.Context, t core.Ticket) error {
	o, err := r.beginEnd("FinishUse", t)
	if err != nil {
		return err
	}
	if o == nil {
		if r.gate.Load() != 0 && t.IsOpen() {
			r.noteSpans(nil, t.Intent())
		}
		return r.upstream.FinishUse(ctx, t)
	}
	r.noteSpans(o, t.Intent())
	err = r.upstream.FinishUse(ctx, t) // spends the ticket, also if it fails
	r.open.drop(t)
	r.logLaunch(o)
	r.bisect(ctx, o)
	r.unpin(ctx, o)
	return err
}

// AbortUse closes the intent of a launch that was not enqueued, and forgets
// that it used its blocks.
func (r *Resource) AbortUse(ctx context.Context, t core.Ticket) error {
	o, err := r.beginEnd("AbortUse", t)
	if err != nil {
		return err
	}
	if o == nil {
		return r.abortUnentered(ctx, t)
	}
	err = r.upstream.AbortUse(ctx, t) // spends the ticket, also if it fails
	r.open.drop(t)
	r.retract(o)
	r.unpin(ctx, o)
	return err
}

// abortUnentered is AbortUse of a launch that only its intent knows.
func (r *Resource) abortUnentered(ctx context.Context, t core.Ticket) error {
	if r.gate.Load() == 0 || !t.IsOpen() {
		return r.upstream.AbortUse(ctx, t)
	}
	o := openLaunches.Get().(*openLaunch)
	defer o.recycle()
	in := t.Intent()
	o.use.LaunchID = in.ID
	for i := range in.Uses {
		if rec, _ := r.glance(in.Uses[i].Block); rec != nil {
			o.known = append(o.known, knownUse{rec: rec, generation: in.Uses[i].Block.Generation})
		}
	}
	err := r.upstream.AbortUse(ctx, t)
	if err == nil {
		r.retract(o)
	}
	return err
}

// beginEnd returns what is known of the launch of a ticket that is to be ended,
// or nil. It refuses a ticket that somebody else is ending.
func (r *Resource) beginEnd(op string, t core.Ticket) (*openLaunch, error) {
	o, ending := r.open.beginEnd(t)
	if ending {
		return nil, &core.StreamMisuseError{Op: op, Reason: "the ticket is being ended by another call: each ticket is finished or aborted once"}
	}
	return o, nil
}
