package debugguard

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
)

// An isolated block is quarantined without bytes: behind its free nothing is
// mapped at its addresses, so a late access faults, and its memory is the
// device's again. It has red zones like any other guarded block, the right one
// up to the end of what the device gives, and is neither poisoned nor kept.

// isolationOf is the unit in which the upstream isolates blocks, 0 if it does not.
func isolationOf(upstream core.Resource) uint64 {
	if !upstream.Features().Has(core.Isolation) {
		return 0
	}
	i, ok := core.Find[core.Isolator](upstream)
	if !ok {
		return 0
	}
	return i.IsolationGranularity()
}

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
	case r.forwarded.waiting.Load() > 0:
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
	hunts, wide := r.hunting(unmapping), l.Widened(r.granule)
	if req.Isolated || hunts && r.granule != 0 && r.mayIsolate(ctx, wide.Total()-req.Bytes) {
		own := req
		own.Isolated, own.Bytes = true, wide.Total()
		err = r.obtain(ctx, &own, &b, req.Isolated)
		if err == nil {
			r.count.isolated.Add(1)
			return b, wide, true, nil
		}
		if req.Isolated || !outOfMemory(err) && !errors.Is(err, errors.ErrUnsupported) {
			return b, l, false, err
		}
		if outOfMemory(err) { // the rest is no failure of the device's
			r.hide(err)
		}
	}
	if hunts {
		r.count.notIsolated.Add(1)
	}
	req.Bytes = l.Total()
	err = r.obtain(ctx, &req, &b, true)
	return b, l, false, err
}
