package cuda

import "github.com/fencepost-gpu/fencepost/core"

var _ core.Orderer = (*AsyncResource)(nil)

// Unordered implements [core.Orderer].
func (r *AsyncResource) Unordered(id core.BlockID, stream core.StreamID, kind core.Access) []core.UseRecord {
	s, err := r.streams.table.resolve("Unordered", stream)
	if err != nil {
		return nil
	}
	known := s.Known() // before the block's lock: who has the stream's may hold it over a driver's call
	b, err := r.find("Unordered", id, stream)
	if err != nil {
		return nil
	}
	defer b.mu.Unlock()
	return b.history.Unordered(&s.Stream, known, kind)
}
