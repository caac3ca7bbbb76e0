package debugguard

import (
	"context"
	"errors"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
)

// verdictsPerCall is how many verdicts an operation reads in passing.
const verdictsPerCall = 4

// housekeep is the guard's upkeep, done in passing by operations that are not
// on the launch path.
func (r *Resource) housekeep(ctx context.Context) {
	if r.checks.awaited() != 0 {
		r.poll(verdictsPerCall)
	}
	if r.quarantine.memory.blocks.Load() != 0 && r.Mode() < Sample {
		r.enforce(ctx, 0) // what was freed while the mode changed
	}
}

// ReapPending reads the verdicts that are there, lets go what has been in
// quarantine for too long, and asks the upstream. It does not block on the
// device, except over an upstream without use tracking.
func (r *Resource) ReapPending(ctx context.Context) error {
	if r.gate.Load() != 0 {
		r.poll(math.MaxInt)
		r.enforce(ctx, 0)
	}
	return r.upstream.ReapPending(ctx)
}

// Flush empties the quarantine and gives up the canaries: every block's last comparison and its free
// are queued. It does not wait for the device, except over an upstream
// without use tracking. The error joins the frees that failed; their blocks
// stay in quarantine and are tried again.
func (r *Resource) Flush(ctx context.Context) error { return r.flush(ctx, nil) }

// flush is Flush until stop, if that is not nil, says so.
func (r *Resource) flush(ctx context.Context, stop func() bool) error {
	r.evicting.Lock()
	defer r.evicting.Unlock()
	_, kept, err := r.evictAll(ctx, r.quarantine.dequeue(math.MaxUint64), stop)
	r.quarantine.restore(kept)
	_, trimmed := r.trimCanariesUntil(ctx, 0, stop)
	return errors.Join(err, trimmed)
}

// Drain empties the quarantine, waits for every verdict, and drains the
// upstream. Findings of everything freed before it are reported when it
// returns nil.
func (r *Resource) Drain(ctx context.Context) error {
	if r.gate.Load() == 0 {
		return r.upstream.Drain(ctx)
	}
	flushed := r.Flush(ctx)
	if err := r.await(ctx); err != nil {
		return errors.Join(flushed, err)
	}
	return errors.Join(flushed, r.upstream.Drain(ctx))
}

// State is the block's state as its owner sees it. The upstream tells how far
// a forwarded free has come.
func (r *Resource) State(id core.BlockID) core.BlockState {
	if r.gate.Load() == 0 || id.Ordinal != r.ordinal {
		return r.upstream.State(id)
	}
	rec := r.ledger.lock(id)
	if rec == nil {
		return r.upstream.State(id)
	}
	state, forwarded := rec.state(), rec.state() == core.Retired && rec.guard == nil
	rec.mu.Unlock()
	if forwarded {
		return max(state, r.upstream.State(id))
	}
	return state
}

// Blocks lists the blocks that are not released: those of the ledger with
// stacks and uses, then those that the upstream lists and the ledger does not
// know, so that what leaked shows in every mode.
func (r *Resource) Blocks(yield func(core.BlockInfo) bool) {
	for g, rec := range r.ledger.all {
		info := r.ledger.info(g, rec)
		if info.Block.ID.Generation == 0 || info.Block.State == core.Freed {
			continue
		}
		if !yield(info) {
			return
		}
	}
	below, ok := core.Find[core.Inspector](r.upstream)
	if !ok {
		return
	}
	below.Blocks(func(info core.BlockInfo) bool {
		if r.ledger.get(info.Block.ID) != nil {
			return true
		}
		if info.Block.State == core.Live && r.canaries.has(info.Block.ID.Generation) {
			info.Block.State = core.Quarantined
		}
		return yield(info)
	})
}
