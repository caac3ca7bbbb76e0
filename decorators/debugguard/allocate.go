package debugguard

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// stackAlways is the size in bytes from which every block keeps its stacks.
const stackAlways = 1 << 20

// Allocate returns a live block. A guarded one costs red zones and one launch
// more. If memory is refused, quarantine is given up before the refusal is
// passed on. Errors are the upstream's.
func (r *Resource) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	if r.gate.Load() == 0 {
		return r.upstream.Allocate(ctx, req)
	}
	r.housekeep(ctx)
	mode := r.Mode()
	if mode == Off {
		if err = r.obtain(ctx, &req, &b); err == nil {
			r.metered(mode, b.Requested)
		}
		return b, err
	}
	hunted := mode == Hunt || r.hunts(req.Tag)
	if !r.choose(mode, hunted, &req) {
		err = r.allocateKnown(ctx, &req, &b, mode, hunted)
		return b, err
	}
	req, err = req.Normalize("Allocate")
	if err != nil {
		return core.Block{}, err
	}
	return r.allocateGuarded(ctx, req, mode, hunted)
}

// choose decides whether a block is guarded on the device.
func (r *Resource) choose(mode Mode, hunted bool, req *core.Request) bool {
	if r.cfg.Device == nil || mode < Sample {
		return false
	}
	if hunted {
		return true
	}
	if mean, ok := r.rates.of(req.Tag.OrUntagged()); ok {
		return chosen(req.Bytes, mean)
	}
	return r.bytes.take(req.Bytes) && r.timeAllows()
}

// allocateKnown allocates a block that only the ledger knows, into b: most
// blocks come this way, and each copy of one costs more than its lookup.
func (r *Resource) allocateKnown(ctx context.Context, req *core.Request, b *core.Block, mode Mode, hunted bool) error {
	if err := r.obtain(ctx, req, b); err != nil {
		return err
	}
	rec, due := r.ledger.enter(b)
	if hunted || r.keepsStacks(b.Bytes, due) {
		stack := r.ledger.stacks.capture(2)
		rec.stacked = true // the block is nobody's yet
		rec.mu.Lock()
		rec.more().allocStack = stack
		rec.mu.Unlock()
		r.tellStack(b.Bytes, b.Tag, stack)
	}
	r.metered(mode, b.Requested)
	return nil
}

func (r *Resource) tellStack(bytes uint64, tag core.Tag, stack core.Stack) {
	if r.cfg.OnStack != nil {
		r.cfg.OnStack(bytes, tag, stack)
	}
}

// keepsStacks decides whether a block that is not hunted keeps its stacks:
// those whose turn it is by their bytes, and large ones, of which only so many
// in a time that it never costs more than a hundredth of a processor.
func (r *Resource) keepsStacks(bytes uint64, due bool) bool {
	return (due || bytes >= stackAlways) && r.ledger.stacks.affords(r.ledger.clock.instant())
}

// metered counts a block that its caller has now. Nobody asks for the count
// before something may be held back.
func (r *Resource) metered(mode Mode, requested uint64) {
	if mode >= Sample || r.meter.heldBack.Load() {
		r.meter.add(requested)
	}
}

// unmetered counts a block that its caller has no more.
func (r *Resource) unmetered(requested uint64) {
	if r.Mode() >= Sample || r.meter.heldBack.Load() {
		r.meter.sub(requested)
	}
}

// allocateGuarded allocates a block between red zones. If there is no room
// for them, the block goes without.
func (r *Resource) allocateGuarded(ctx context.Context, req core.Request, mode Mode, hunted bool) (b core.Block, err error) {
	l, ok := layoutFor(req.Bytes, r.cfg.RedZone, !hunted)
	if !ok {
		err = r.allocateKnown(ctx, &req, &b, mode, hunted)
		return b, err
	}
	b, l, isolated, err := r.allocateBetween(ctx, req, l)
	if outOfMemory(err) {
		r.hide(err)
		r.count.unguarded.Add(1)
		err = r.allocateKnown(ctx, &req, &b, mode, hunted)
		return b, err
	}
	if err != nil {
		return b, err
	}
	l.base = b.ID.Ptr
	b.ID.Ptr, b.Bytes = l.start(), req.Bytes
	stack := r.ledger.stacks.capture(1)
	rec := newGuarded(b, r.ledger.clock.instant(), stack)
	rec.guard.layout, rec.guard.isolated, rec.guard.whole = l, isolated, hunted || b.Bytes <= r.cfg.PoisonCap
	r.tellStack(l.total(), b.Tag, stack)
	r.arm(ctx, rec)
	r.ledger.enterGuarded(rec)
	r.count.guarded.Add(1)
	r.metered(mode, b.Requested)
	return b, nil
}
