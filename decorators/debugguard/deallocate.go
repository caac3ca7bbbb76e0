package debugguard

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// Deallocate gives a block back. A guarded one is poisoned and quarantined, or,
// if it is isolated or too large for that, compared and passed on; while an
// intent is open on it, that waits for the intent's end and the block is Retired. A second free is refused with a
// [core.UseAfterFreeError] and not passed on, and so is a block that was
// never allocated here; another device's block is a [core.StreamMisuseError].
func (r *Resource) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	err = r.path.Deallocate(ctx, nil, &id, &b)
	return b, err
}

// prepareFree does what comes before the free of a block, or all of it if the block is guarded. What it
// retires, a second free finds.
func (s share) prepareFree(ctx context.Context, o *path.Op) (err error) {
	r, id, now := s.r, o.ID, s.r.rules.Load()
	if id.Ordinal != r.ordinal && now.setting.Mode != Off {
		return r.foreignDevice(id)
	}
	r.pollVerdicts(now)
	rec := r.ledger.Get(id)
	if rec != nil && rec.Guard == nil && rec.Retire(id.Generation) {
		return s.prepareUnguarded(ctx, o, rec)
	}
	var span core.SpanContext
	if rec != nil {
		span = r.spanIn(ctx) // before the lock: it is the program's code
		rec = r.ledger.LockAny(id)
	}
	switch {
	case rec == nil:
		return s.prepareUnknown(o)
	case rec.State() != core.Live && rec.Guard == nil && r.Mode() == Off:
		rec.Unlock()
		o.KeepNumber(s.r.path, passes)
		return nil
	case rec.State() != core.Live:
		return r.doubleFree(id, rec)
	case rec.Guard == nil: // another free of it has failed just now
		rec.Unlock()
		return nil
	case !rec.Guard.Layout.Contains(id.Ptr):
		return r.wildPointer("Deallocate", id, id.AllocStream, rec)
	}
	of := r.records.Find(id)
	if o.Block, err = r.freeKnown(ctx, id, rec, span); err == nil {
		o.Record, o.Ended, o.Got = of, monotime.Now(), s.r.path
	}
	return err
}

// prepareUnguarded is the rest for a block that was retired and is not guarded: a
// second free of it is refused, unless this one fails.
func (s share) prepareUnguarded(ctx context.Context, o *path.Op, rec *ledger.Record) error {
	r, id := s.r, o.ID
	if !rec.Contains(id.Ptr) {
		r.revive(rec, id.Generation)
		if rec = r.ledger.Lock(id); rec != nil {
			return r.wildPointer("Deallocate", id, id.AllocStream, rec)
		}
		o.KeepNumber(s.r.path, passes)
		return nil
	}
	if rec.Stacked {
		stack, span := r.ledger.Stacks.Capture(stackSkip), r.spanIn(ctx)
		if rec.Lock(id.Generation) {
			rec.SetFreed(stack, span)
			rec.Unlock()
		}
	}
	f := &freeing{rec: rec, sealed: r.seals.get(id.Generation)}
	o.Keep(s.r.path, f)
	_ = r.breakSeal(ctx, f.sealed) // what could not be compared is counted
	return nil
}

// prepareUnknown is for a block without a record: one allocated while the guard
// was off is passed on, anything else is found.
func (s share) prepareUnknown(o *path.Op) error {
	state := s.r.upstream.State(o.ID)
	if s.r.Mode() == Off || state == core.Live || state == core.Quarantined {
		o.KeepNumber(s.r.path, passes)
		return nil
	}
	return s.r.freedUnknown(o.ID, state)
}

func (r *Resource) freedUnknown(id core.BlockID, state core.BlockState) error {
	if rec := r.ledger.LockAny(id); rec != nil {
		return r.doubleFree(id, rec)
	}
	return r.unknownFree(id, state)
}

// settleFree makes a block live again whose free failed. One that was unknown may be freed since it was looked up.
func (s share) settleFree(o *path.Op, err error) error {
	r := s.r
	if err == nil {
		r.listeners.ReleasedAtOnce(o.Block)
		return nil
	}
	rec, _ := o.Kept(s.r.path).(*ledger.Record)
	var sealed *seal
	if f, ok := o.Kept(s.r.path).(*freeing); ok {
		rec, sealed = f.rec, f.sealed
	}
	switch {
	case rec != nil && (!errors.Is(err, path.ErrAbandoned) || r.upstream.State(o.ID) == core.Live):
		r.revive(rec, o.ID.Generation)
		r.seals.restore(sealed)
	case rec == nil && o.Lacks != s.r.path && o.Number(s.r.path) == passes && r.Mode() != Off && errors.Is(err, core.ErrUseAfterFree):
		return r.freedUnknown(o.ID, core.Retired)
	}
	return err
}

// freeKnown frees a live guarded block in a span; rec is locked. From here on a second
// free of it is refused, unless this one fails.
func (r *Resource) freeKnown(ctx context.Context, id core.BlockID, rec *ledger.Record,
	span core.SpanContext) (core.Block, error) {
	rec.SetState(core.Retired)
	rec.SetFreed(r.ledger.Stacks.Capture(stackSkip), span)
	if rec.Guard.Open > 0 {
		rec.Guard.FreeBlocked = true
		r.blockedFrees.add(rec.Footprint())
		b := rec.Block()
		rec.Unlock()
		r.upstream.Withhold(rec.Inner(), core.Retired)
		return b, nil
	}
	rec.Unlock()
	sealed, failed := r.seals.get(id.Generation), true
	defer func() {
		if failed {
			r.revive(rec, id.Generation)
			r.seals.restore(sealed)
		}
	}()
	_ = r.breakSeal(ctx, sealed) // what could not be compared is counted
	failed = false
	b, err := r.freeGuarded(ctx, rec)
	failed = err != nil
	return b, err
}

// revive makes a block live again whose free failed.
func (r *Resource) revive(rec *ledger.Record, g core.Generation) {
	if rec.Lock(g) {
		rec.Revive(g)
		rec.Unlock()
	}
}

// freeGuarded frees a guarded block that is not in use. One that was poisoned
// goes to quarantine, whatever else failed: its bytes are gone, so its owner
// cannot have it back.
func (r *Resource) freeGuarded(ctx context.Context, rec *ledger.Record) (core.Block, error) {
	returned := false
	defer func() {
		if !returned && rec.State() == core.Retired && !r.gone(rec) { // code of the user's panics: its bytes may be gone
			rec.Guard.Checked = true
			r.quarantineBlock(rec)
		}
	}()
	b, err := r.freeOrQuarantine(ctx, rec)
	returned = true
	return b, err
}

func (r *Resource) freeOrQuarantine(ctx context.Context, rec *ledger.Record) (core.Block, error) {
	if r.poison(ctx, rec) {
		return r.quarantineBlock(rec), nil
	}
	b, err := r.forwardFree(ctx, rec)
	if err != nil {
		return core.Block{}, err
	}
	b.ID, b.Bytes = rec.ID(), rec.Bytes
	return b, nil
}

// freeUnblocked frees a guarded block whose last intent has ended. Its owner
// has been told that it is freed, so one whose free fails is kept and tried
// again like any other in quarantine.
func (r *Resource) freeUnblocked(ctx context.Context, rec *ledger.Record) {
	defer r.blockedFrees.sub(rec.Footprint())
	free := func() {
		if _, err := r.freeGuarded(ctx, rec); err != nil {
			rec.Guard.Checked = true
			r.quarantineBlock(rec)
		}
	}
	compared := false
	defer func() {
		if !compared { // who is told of a finding panics
			free()
		}
	}()
	_ = r.breakSeal(ctx, r.seals.get(rec.Generation()))
	compared = true
	free()
}
