package debugguard

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// Deallocate gives a block back. A guarded one is poisoned and quarantined, or,
// if it is isolated or too large for that, compared and passed on; while an
// intent is open on it, that waits for the intent's end and the block is Retired. A second free is refused with a
// [core.UseAfterFreeError] and not passed on, and so is a block that was
// never allocated here; another device's block is a [core.StreamMisuseError].
func (r *Resource) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	if r.path.Deallocate(ctx, &id, &b) {
		return b, nil
	}
	if r.gate.Load() == 0 {
		return r.upstream.Deallocate(ctx, id)
	}
	now := r.rules.Load()
	if id.Ordinal != r.ordinal && now.setting.Mode != Off {
		return core.Block{}, r.foreignDevice(id)
	}
	r.readInPassing(now)
	rec := r.ledger.Get(id)
	if rec == nil {
		return r.freeUnknown(ctx, id)
	}
	if rec.Guard == nil && rec.Retire(id.Generation) {
		err = r.freeUnguarded(ctx, &id, rec, &b)
		return b, err
	}
	if rec = r.ledger.LockAny(id); rec == nil {
		return r.freeUnknown(ctx, id)
	}
	switch {
	case rec.State() != core.Live && rec.Guard == nil && r.Mode() == Off:
		rec.Unlock()
		return r.upstream.Deallocate(ctx, id)
	case rec.State() != core.Live:
		return core.Block{}, r.doubleFree(id, rec)
	case rec.Guard == nil: // another free of it has failed just now
		rec.Unlock()
		return r.Deallocate(ctx, id)
	case !rec.Guard.Layout.Contains(id.Ptr):
		return core.Block{}, r.wildPointer("Deallocate", id, id.AllocStream, rec)
	}
	return r.freeKnown(ctx, id, rec)
}

// freeUnguarded passes the free of a block on that this call has retired: a
// second free of it is refused, unless this one fails. The block goes to b.
func (r *Resource) freeUnguarded(ctx context.Context, id *core.BlockID, rec *ledger.Record, b *core.Block) (err error) {
	if !rec.Contains(id.Ptr) {
		r.revive(rec, id.Generation)
		if rec = r.ledger.Lock(*id); rec != nil {
			return r.wildPointer("Deallocate", *id, id.AllocStream, rec)
		}
		*b, err = r.upstream.Deallocate(ctx, *id)
		return err
	}
	if rec.Stacked {
		stack, span := r.ledger.Stacks.Capture(2), r.spanIn(ctx)
		if rec.Lock(id.Generation) {
			rec.SetFreed(stack, span)
			rec.Unlock()
		}
	}
	sealed, returned := r.seals.get(id.Generation), false
	defer func() {
		if err != nil || !returned && r.upstream.State(*id) == core.Live { // or code of the user's panics before the free
			r.revive(rec, id.Generation)
			r.seals.restore(sealed)
		}
	}()
	_ = r.breakSeal(ctx, sealed) // what could not be compared is counted
	*b, err = r.upstream.Deallocate(ctx, *id)
	returned = true
	return err
}

// freeKnown frees a live guarded block; rec is locked. From here on a second
// free of it is refused, unless this one fails.
func (r *Resource) freeKnown(ctx context.Context, id core.BlockID, rec *ledger.Record) (core.Block, error) {
	rec.SetState(core.Retired)
	rec.SetFreed(r.ledger.Stacks.Capture(2), r.spanIn(ctx))
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

// freeGuarded frees a guarded block that nobody uses. One that was poisoned
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

// freeUnknown frees a block without a record: one allocated while the guard
// was off is passed on, anything else is found.
func (r *Resource) freeUnknown(ctx context.Context, id core.BlockID) (core.Block, error) {
	state := r.upstream.State(id)
	if r.Mode() == Off || state == core.Live || state == core.Quarantined {
		b, err := r.upstream.Deallocate(ctx, id)
		if err == nil || r.Mode() == Off || !errors.Is(err, core.ErrUseAfterFree) {
			return b, err
		}
		state = core.Retired // somebody else freed it since it was looked up
	}
	if rec := r.ledger.LockAny(id); rec != nil {
		return core.Block{}, r.doubleFree(id, rec)
	}
	return core.Block{}, r.unknownFree(id, state)
}
