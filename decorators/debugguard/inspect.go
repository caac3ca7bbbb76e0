package debugguard

import (
	"github.com/fencepost-gpu/fencepost/core"
)

// State is the block's state as its owner sees it. The upstream tells how far
// a forwarded free has come.
func (r *Resource) State(id core.BlockID) core.BlockState {
	if r.gate.Load() == 0 || id.Ordinal != r.ordinal {
		return r.upstream.State(id)
	}
	rec := r.ledger.Lock(id)
	if rec == nil {
		return r.upstream.State(id)
	}
	state, forwarded := rec.State(), rec.State() == core.Retired && rec.Guard == nil
	rec.Mu.Unlock()
	if forwarded {
		return max(state, r.upstream.State(id))
	}
	return state
}

// Blocks lists the blocks that are not released: those of the ledger with
// stacks and uses, then those that the upstream lists and the ledger does not
// know, so that what leaked shows in every mode.
func (r *Resource) Blocks(yield func(core.BlockInfo) bool) {
	for g, rec := range r.ledger.All {
		info := r.ledger.Info(g, rec)
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
		if r.ledger.Get(info.Block.ID) != nil {
			return true
		}
		if info.Block.State == core.Live && r.canaries.has(info.Block.ID.Generation) {
			info.Block.State = core.Quarantined
		}
		return yield(info)
	})
}

var _ core.Rememberer = (*Resource)(nil)

// Remember is what the ledger knows of a block, a freed one among those that it
// remembers, in any mode: with its stacks, as far as they were kept, and its last
// uses.
func (r *Resource) Remember(id core.BlockID) (info core.BlockInfo, ok bool) {
	if id.Ordinal != r.ordinal {
		return core.BlockInfo{}, false
	}
	rec := r.ledger.LockAny(id)
	if rec == nil {
		return core.BlockInfo{}, false
	}
	defer rec.Mu.Unlock()
	return r.ledger.Describe(rec), true
}
