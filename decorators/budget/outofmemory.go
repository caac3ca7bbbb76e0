package budget

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// nameHolders adds the largest holders to a refusal of the upstream that is for want of memory, as
// soon as it comes. What other requests have been charged for and not been given yet is in no block,
// and not among them.
func (r *Resource) nameHolders(err error) {
	e, ok := errors.AsType[*core.OutOfMemoryError](err)
	if !ok || e.Holders != nil {
		return
	}
	held, _ := r.holdings(false)
	var inBlocks uint64
	for at, s := range held {
		if at.state == core.Live || at.state == core.Quarantined {
			inBlocks += s.bytes
		}
	}
	r.claims.addTo(held)
	e.Holders, e.MoreHolders, e.MoreBytes = largest(held.list())
	refuse.Named(e, inBlocks)
}
