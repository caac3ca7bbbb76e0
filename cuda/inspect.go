package cuda

import "github.com/fencepost-gpu/fencepost/core"

// State is the block's state.
func (r *AsyncResource) State(id core.BlockID) core.BlockState {
	if b := r.streams.table.lookup(id); b != nil && id.Ordinal == r.ordinal {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.core.ID.Generation == id.Generation {
			return b.core.State
		}
	}
	return core.Freed
}

// Stats adds the streams' books. Reserved, PoolUsed and their high marks are
// as last read by the reaper; what is mapped for isolated blocks is exact.
func (r *AsyncResource) Stats() core.Stats {
	pool := r.poolStats.Load()
	st := core.Stats{Poisoned: clamp(r.streams.table.poisoned.Load()), Reserved: pool.Reserved, PoolUsed: pool.Used,
		ReservedHigh: pool.ReservedHigh, PoolUsedHigh: pool.UsedHigh}
	r.streams.table.group.AddPeaksTo(&st)
	r.isolated.addTo(&st)
	for _, s := range r.streams.table.streams() {
		if !s.adopted {
			s.books.addTo(&st)
		}
		st.OpenIntents += clamp(s.Open())
	}
	for _, s := range r.streams.table.everyStream() {
		st.Events += clamp(s.Events())
	}
	r.streams.table.adoptedBooks.addTo(&st)
	return st
}

// FreedOn is the free counters of the stream of a lease; zero if it is not leased.
func (r *AsyncResource) FreedOn(id core.StreamID) core.FreeCounters {
	s, err := r.streams.table.resolve("FreedOn", id)
	if err != nil {
		return core.FreeCounters{}
	}
	return s.frees.bytes.counters()
}
