package cuda

import "github.com/fencepost-gpu/fencepost/core"

// Blocks lists every block that is not released. It copies a few at a time, so
// that neither its memory nor the time for which it holds up an allocation
// grows with how many there are. No lock is held over yield.
func (r *AsyncResource) Blocks(yield func(core.BlockInfo) bool) {
	stopped := false
	r.streams.table.eachBooks(r.streams.table.streams(), func(b *books) {
		stopped = stopped || !b.list(yield)
	})
}

// list lists the blocks in the books until yield returns false, which it then
// returns.
func (b *books) list(yield func(core.BlockInfo) bool) bool {
	return b.blocks.List(&b.mu, func(g core.Generation, record *block) bool {
		record.mu.Lock()
		c := record.core
		record.mu.Unlock()
		return c.ID.Generation != g || yield(core.BlockInfo{Block: c})
	})
}
