package budget

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

// nameHolders adds the largest holders to a refusal of the upstream that is for want of memory.
func (r *Resource) nameHolders(err error) {
	e, ok := errors.AsType[*core.OutOfMemoryError](err)
	if !ok || e.Holders != nil {
		return
	}
	held, _ := r.holdings(true)
	r.claims.addTo(held)
	e.Holders, e.MoreHolders, e.MoreBytes = largest(held.list())
}
