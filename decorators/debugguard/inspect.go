package debugguard

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
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
	rec.Unlock()
	if forwarded {
		return max(state, r.upstream.State(id))
	}
	return state
}

// Inspect tells of blocks as their owners know them, and of streams what the
// upstream tells.
func (r *Resource) Inspect() core.Inspector { return r.inspector }

// inspector is the upstream's, but for what the guard knows better.
type inspector struct {
	below    core.Inspector
	ledger   *ledger.Ledger
	canaries *canaries
	ordinal  int
}

func (i *inspector) Unordered(id core.BlockID, stream core.StreamID, access core.Access) ([]core.UseRecord, bool) {
	return i.below.Unordered(id, stream, access)
}

func (i *inspector) InFlight() []core.UseRecord { return i.below.InFlight() }

func (i *inspector) Leased(stream core.StreamID) bool { return i.below.Leased(stream) }

func (i *inspector) Adopted(id core.BlockID, stream core.StreamID) bool {
	return i.below.Adopted(id, stream)
}

func (i *inspector) IsolationGranularity() uint64 { return i.below.IsolationGranularity() }

// Blocks lists the blocks that are not released: those of the ledger with
// stacks and uses, then those that the upstream lists and the ledger does not
// know, so that what leaked shows in every mode.
func (i *inspector) Blocks(yield func(core.BlockInfo) bool) {
	for g, rec := range i.ledger.All {
		info := i.ledger.Info(g, rec)
		if info.Block.ID.Generation == 0 || info.Block.State == core.Freed {
			continue
		}
		if !yield(info) {
			return
		}
	}
	i.below.Blocks(func(info core.BlockInfo) bool {
		if i.ledger.Get(info.Block.ID) != nil {
			return true
		}
		if info.Block.State == core.Live && i.canaries.has(info.Block.ID.Generation) {
			info.Block.State = core.Quarantined
		}
		return yield(info)
	})
}

// Remember is what the ledger knows of a block, a freed one among those that it
// remembers, in any mode: with its stacks, as far as they were kept, and its last
// uses.
func (i *inspector) Remember(id core.BlockID) (info core.BlockInfo, ok bool) {
	if id.Ordinal != i.ordinal {
		return core.BlockInfo{}, false
	}
	rec := i.ledger.LockAny(id)
	if rec == nil {
		return core.BlockInfo{}, false
	}
	defer rec.Unlock()
	return i.ledger.Describe(rec), true
}
