package budget

import (
	"errors"
	"slices"

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
	holders := held.list()
	e.Holders = slices.Clone(holders[:min(namedHolders, len(holders))])
}
