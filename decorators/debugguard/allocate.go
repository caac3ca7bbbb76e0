package debugguard

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
)

// stackAlways is the size in bytes from which every block keeps its stacks.
const stackAlways = 1 << 20

// Allocate returns a live block. A guarded one costs red zones and one launch
// more. If memory is refused, quarantine is given up before the caller is refused;
// if all that is missing is frees of the guard's that the device has yet to
// complete, Allocate waits for them, see [Config.Patience]. Errors are the
// upstream's.
func (r *Resource) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	if r.gate.Load() == 0 {
		b, err = r.upstream.Allocate(ctx, req)
	} else {
		err = r.allocate(ctx, &req, &b)
	}
	if err != nil {
		r.passRefusal(ctx, &req, err)
	}
	return b, err
}

func (r *Resource) allocate(ctx context.Context, req *core.Request, b *core.Block) (err error) {
	r.housekeep(ctx)
	mode := r.Mode()
	if mode == Off {
		return r.obtain(ctx, req, b, true)
	}
	req.Tag = req.Tag.OrUntagged()
	hunted := mode == Hunt || r.hunts(req.Tag)
	if !r.choose(mode, hunted, req) {
		return r.allocateKnown(ctx, req, b, hunted)
	}
	normal, err := req.Normalize("Allocate")
	if err != nil {
		return err
	}
	*b, err = r.allocateGuarded(ctx, normal, hunted)
	return err
}

// choose decides whether a block is guarded on the device.
func (r *Resource) choose(mode Mode, hunted bool, req *core.Request) bool {
	if r.cfg.Device == nil || mode < Sample {
		return false
	}
	if hunted {
		return true
	}
	if mean, ok := r.rates.of(req.Tag); ok {
		return chosen(req.Bytes, mean)
	}
	return r.bytes.choose(req.Bytes) && r.timeAllows()
}

// allocateKnown allocates a block that only the ledger knows, into b: most
// blocks come this way, and each copy of one costs more than its lookup.
func (r *Resource) allocateKnown(ctx context.Context, req *core.Request, b *core.Block, hunted bool) error {
	if err := r.obtain(ctx, req, b, true); err != nil {
		return err
	}
	rec, due := r.ledger.enter(b)
	if hunted || r.keepsStacks(b.Bytes, due) {
		stack := r.ledger.stacks.capture(3)
		rec.stacked = true // the block is nobody's yet
		rec.mu.Lock()
		rec.more().allocStack = stack
		rec.mu.Unlock()
		r.tellStack(b.Bytes, b.Tag, stack)
	}
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

// allocateGuarded allocates a block between red zones. If there is no room
// for them, the block goes without.
func (r *Resource) allocateGuarded(ctx context.Context, req core.Request, hunted bool) (b core.Block, err error) {
	l, ok := canary.LayoutFor(req.Bytes, r.cfg.RedZone, !hunted)
	if !ok {
		err = r.allocateKnown(ctx, &req, &b, hunted)
		return b, err
	}
	b, l, isolated, err := r.allocateBetween(ctx, req, l)
	if outOfMemory(err) {
		r.hide(err)
		if err = r.allocateKnown(ctx, &req, &b, hunted); err == nil { // one that is refused after all is no gap
			r.count.unguarded.Add(1)
		}
		return b, err
	}
	if err != nil {
		return b, err
	}
	l.Base = b.ID.Ptr
	b.ID.Ptr, b.Bytes = l.Start(), req.Bytes
	stack := r.ledger.stacks.capture(2)
	rec := newGuarded(b, r.ledger.clock.instant(), stack)
	rec.guard.layout, rec.guard.isolated, rec.guard.whole = l, isolated, hunted || b.Bytes <= r.cfg.PoisonCap
	if isolated {
		r.forwarded.isolation.Add(int64(l.Total() - b.Bytes))
	}
	r.tellStack(l.Total(), b.Tag, stack)
	r.arm(ctx, rec)
	r.ledger.enterGuarded(rec)
	r.count.guarded.Add(1)
	return b, nil
}
