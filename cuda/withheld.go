package cuda

import "github.com/fencepost-gpu/fencepost/core"

// Withhold takes a live block out of the live bytes whose peak is kept: its owner
// has given it back.
func (r *AsyncResource) Withhold(id core.BlockID, _ core.BlockState) {
	b := r.streams.table.lookup(id)
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.core.ID.Generation == id.Generation && b.core.State == core.Live && !b.withheld {
		b.withheld = true
		b.stream.books.Withhold(&b.core)
	}
}

// Withhold is AsyncResource's.
func (r *DirectResource) Withhold(id core.BlockID, _ core.BlockState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.live[id.Generation]; ok && !r.withheld[id.Generation] {
		r.withheld[id.Generation] = true
		r.books.Withhold(&b)
	}
}
