package cuda

import "github.com/fencepost-gpu/fencepost/core"

// blocks lists every block that is not released. It copies a few at a time, so
// that neither its memory nor the time for which it holds up an allocation
// grows with how many there are. No lock is held over yield.
func (r *AsyncResource) blocks(yield func(core.BlockInfo) bool) {
	stopped := false
	r.streams.table.eachBooks(r.streams.table.streams(), func(b *streamBooks) {
		stopped = stopped || !b.list(yield)
	})
}
