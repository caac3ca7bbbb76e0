package debugguard

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Allocate returns a live block. A guarded one costs red zones and one launch
// more. If memory is refused, quarantine is given up before the caller is refused;
// while frees are on their way that may make room, whosever they are, Allocate waits for
// the device to come to them, in every mode: see [Advanced.Patience]. Errors are the
// upstream's, and say if they were waited for.
func (r *Resource) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	err = r.path.Allocate(ctx, nil, &req, &b)
	return b, err
}

// choose decides whether a block is guarded on the device.
func (r *Resource) choose(u *rules, hunted bool, req *core.Request) bool {
	if !r.samples(u) {
		return false
	}
	if hunted {
		return true
	}
	if len(u.rates) > 0 {
		if own, ok := u.rates[req.Tag]; ok {
			return own.chooses(req.Bytes)
		}
	}
	return r.bytesChoose(u, req) && (u.unbounded || r.throttle.allows(uint64(r.cfg.Advanced.Now().Sub(r.opened)/ledger.Tick), req.Stream))
}

// spanIn is the span in force in ctx, exported or not.
func (r *Resource) spanIn(ctx context.Context) core.SpanContext {
	if r.cfg.Advanced.Span == nil {
		return core.SpanContext{}
	}
	return r.cfg.Advanced.Span(ctx)
}

func (r *Resource) tellStack(bytes uint64, tag core.Tag, stack core.Stack) {
	if r.cfg.Advanced.OnStack != nil {
		usercode.Call("debugguard.Advanced.OnStack", func() { r.cfg.Advanced.OnStack(bytes, tag, stack) })
	}
}

// keepsStacks decides whether a block that is not hunted keeps its stacks:
// those whose turn it is by their bytes, and large ones, of which only so many
// in a time that it never costs more than a hundredth of a processor.
func (r *Resource) keepsStacks(bytes uint64, due bool) bool {
	return (due || bytes >= ledger.AlwaysStacks) && r.ledger.Stacks.Affords(monotime.Now())
}

// allocateGuarded makes a block between red zones, of layout l, that of the operation.
func (s share) allocateGuarded(ctx context.Context, o *path.Op, hunted bool, l canary.Layout) error {
	r, req := s.r, o.Request
	in := r.spanIn(ctx) // before there is a block: it is the program's code
	b, l, isolated, err := r.allocateBetween(ctx, req, l)
	if err != nil {
		return err
	}
	l.Base = b.ID.Ptr
	b.ID.Ptr, b.Bytes = l.Start(), req.Bytes
	stack := r.ledger.Stacks.Capture(stackSkip)
	rec := r.ledger.NewGuarded(b, stack, in)
	rec.Guard.Layout, rec.Guard.Isolated, rec.Guard.Whole = l, isolated, hunted || b.Bytes <= r.cfg.Advanced.PoisonCap
	if isolated {
		r.forwarded.isolation.Add(int64(l.Total() - b.Bytes))
	}
	r.tellStack(l.Total(), b.Tag, stack)
	armed := false
	defer func() {
		if !armed { // code of the user's panics in a layer below, so the block has no owner
			r.noteReleased(rec)
			_, _ = r.upstream.Deallocate(context.WithoutCancel(ctx), rec.Inner())
		}
	}()
	r.arm(ctx, launchArm, rec, redZones)
	armed = true
	of := r.records.Enter(&b)
	r.ledger.EnterGuarded(r.shardFor(o.Lane), of, rec)
	r.count.guarded.Add(1)
	o.Block, o.Record, o.Ended, o.Got = b, of, monotime.Now(), s.r.path
	return nil
}

// An isolated block is quarantined without bytes: behind its free nothing is
// mapped at its addresses, so a late access faults, and its memory is the
// device's again. It has red zones like any other guarded block, the right one
// up to the end of what the device gives, and is neither poisoned nor kept.

// isolationShare is the part of a budget, one in so many bytes, that isolated
// blocks may take beyond what callers have live of them before a hunt isolates no
// more: an isolated block of a few bytes takes a whole unit, and is not unmapped
// before the device has completed its free and the host has seen that.
const isolationShare = 8

// mayIsolate reports whether a hunt may isolate one more block, which takes so
// many bytes beyond those of its caller.
func (r *Resource) mayIsolate(ctx context.Context, spare uint64) bool {
	within := func() bool {
		limit := r.upstream.Stats().Limit
		return limit == 0 || unsigned(r.forwarded.isolation.Load())+spare <= limit/isolationShare
	}
	switch {
	case r.path.Room().Waiting() > 0:
		return false
	case within():
		return true
	}
	_ = r.upstream.ReapPending(ctx) // unmaps what it can; what fails there, the next one tells
	return within()
}

// allocateBetween allocates the block of a layout, isolated if the hunt or the
// request wants it so. A hunt makes do without, and does not wait for it.
func (r *Resource) allocateBetween(ctx context.Context, req core.Request, l canary.Layout) (b core.Block, _ canary.Layout, isolated bool, err error) {
	hunts, wide := r.hunting().Unmap, l.Widened(r.granule)
	if req.Isolated || hunts && r.granule != 0 && r.mayIsolate(ctx, wide.Total()-req.Bytes) {
		own := req
		own.Isolated, own.Bytes, own.Before = true, wide.Total(), req.Before+wide.Left
		err = r.obtain(ctx, &own, &b, req.Isolated)
		if err == nil {
			r.count.isolated.Add(1)
			return b, wide, true, nil
		}
		if req.Isolated || !cures.Short(err) && !errors.Is(err, errors.ErrUnsupported) {
			return b, l, false, err
		}
		if cures.Short(err) { // the rest is no failure of the device's
			r.hide(err)
		}
	}
	if hunts {
		r.count.notIsolated.Add(1)
	}
	req.Bytes, req.Before = l.Total(), req.Before+l.Left
	err = r.obtain(ctx, &req, &b, true)
	return b, l, false, err
}
