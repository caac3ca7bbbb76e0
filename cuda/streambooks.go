package cuda

import "github.com/fencepost-gpu/fencepost/core"

var _ core.StreamBooks = (*AsyncResource)(nil)

// Leased implements [core.StreamBooks]. It takes no lock.
func (r *AsyncResource) Leased(stream core.StreamID) bool {
	_, ok := (*r.streams.table.leases.Load())[stream]
	return ok
}

// Adopted implements [core.StreamBooks]. A block remembers that its stream was
// adopted when the lease was given back.
func (r *AsyncResource) Adopted(id core.BlockID, stream core.StreamID) bool {
	table := r.streams.table
	if s, ok := (*table.leases.Load())[stream]; ok && s.adopted {
		return true
	}
	b, err := r.find("Adopted", id, stream)
	if err != nil {
		return false
	}
	defer b.mu.Unlock()
	return b.stream.adopted
}
