package debugguard

import "github.com/fencepost-gpu/fencepost/core"

var _ core.Rememberer = (*Resource)(nil)

// Remember is what the ledger knows of a block, a freed one among those that it
// remembers, in any mode: with its stacks, as far as they were kept, and its last
// uses.
func (r *Resource) Remember(id core.BlockID) (info core.BlockInfo, ok bool) {
	if id.Ordinal != r.ordinal {
		return core.BlockInfo{}, false
	}
	rec := r.ledger.lockAny(id)
	if rec == nil {
		return core.BlockInfo{}, false
	}
	defer rec.mu.Unlock()
	return r.ledger.describe(rec), true
}
