package cuda

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/internal/vmm"
)

// State is the block's state.
func (r *tracker) State(id core.BlockID) core.BlockState {
	if b := r.streams.table.lookup(id); b != nil && id.Ordinal == r.streams.table.ordinal {
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
func (r *tracker) Stats() core.Stats {
	st := r.inBooks()
	st.Poisoned = clamp(r.streams.table.poisoned.Load())
	r.memory.addTo(&st)
	r.streams.table.group.AddPeaksTo(&st)
	r.mapper.AddTo(&st)
	if bound := r.share.bound(); bound != noBound {
		st.HeldLimit = bound
	}
	for _, s := range r.streams.table.streams() {
		st.OpenIntents += clamp(s.Open())
	}
	for _, s := range r.streams.table.everyStream() {
		st.Events += clamp(s.Events())
	}
	r.path.Room().AddTo(&st, r.path.Resource())
	return st
}

// inBooks is what the books of all streams have.
func (r *tracker) inBooks() (st core.Stats) {
	for _, s := range r.streams.table.streams() {
		if !s.adopted {
			s.books.addTo(&st)
		}
	}
	r.streams.table.adoptedBooks.addTo(&st)
	return st
}

// FreedOn is the free counters of the stream of a lease; zero if it is not leased.
func (r *tracker) FreedOn(id core.StreamID) core.FreeCounters {
	s, err := r.streams.table.resolve("FreedOn", id)
	if err != nil {
		return core.FreeCounters{}
	}
	c := s.frees.bytes.counters()
	if r.own != nil {
		s.host.Lock()
		c.Queued, c.Completed = c.Queued+s.freedAtHand, c.Completed+s.freedAtHand
		s.host.Unlock()
	}
	return c
}

// Inspect tells of the resource's blocks and streams.
func (r *tracker) Inspect() core.Inspector { return inspector{r.streams.table, r.mapper} }

// inspector is what a tracker knows beyond what [core.Resource] asks.
type inspector struct {
	table  *streamTable
	mapper *vmm.Mapper
}

// Blocks lists every block that is not released. It copies a few at a time, so that
// neither its memory nor the time for which it holds up an allocation grows with how many
// there are. No lock is held over yield.
func (i inspector) Blocks(yield func(core.BlockInfo) bool) {
	stopped := false
	i.table.eachBooks(i.table.streams(), func(b *streamBooks) {
		stopped = stopped || !b.list(yield)
	})
}

// Released lists the newest released blocks of each stream, if
// [StreamPoolConfig.RememberReleased] asks for them, until yield returns false. Their Bytes may be
// another block's now. A caller who lists the blocks of Inspect first and these second misses none
// that is released meanwhile. It takes the lock of one stream at a time, and none over yield.
func (r *tracker) Released(yield func(core.Block) bool) {
	stopped := false
	r.streams.table.eachBooks(r.streams.table.streams(), func(b *streamBooks) {
		stopped = stopped || !b.listGone(yield)
	})
}

// Remember knows nothing: what is not in the books is forgotten.
func (i inspector) Remember(core.BlockID) (core.BlockInfo, bool) { return core.BlockInfo{}, false }

func (i inspector) Unordered(id core.BlockID, stream core.StreamID, kind core.Access) ([]core.UseRecord, bool) {
	s, err := i.table.resolve("Unordered", stream)
	if err != nil {
		return nil, true
	}
	known := s.Known() // before the block's lock: who has the stream's may hold it over a driver's call
	b, err := i.table.find("Unordered", id, stream)
	if err != nil {
		return nil, true
	}
	defer b.mu.Unlock()
	return b.history.Unordered(&s.Stream, known, kind), true
}

// InFlight lists at most 32 launches of each stream. It does not wait for a driver's
// call that hangs: the launches of that stream are then left out.
func (i inspector) InFlight() []core.UseRecord {
	var streams [][]core.UseRecord
	for _, s := range i.table.streams() {
		streams = append(streams, s.InFlight())
	}
	var list []core.UseRecord
	for round, some := 0, true; some; round++ {
		some = false
		for _, launches := range streams {
			if round < len(launches) {
				list, some = append(list, launches[round]), true
			}
		}
	}
	return list
}

// Leased takes no lock.
func (i inspector) Leased(stream core.StreamID) bool {
	return i.table.leases.Load().find(stream) != nil
}

// Adopted is known of a block's stream also after the lease was given back.
func (i inspector) Adopted(id core.BlockID, stream core.StreamID) bool {
	if s := i.table.leases.Load().find(stream); s != nil && s.adopted {
		return true
	}
	b, err := i.table.find("Adopted", id, stream)
	if err != nil {
		return false
	}
	defer b.mu.Unlock()
	return b.stream.adopted
}

func (i inspector) IsolationGranularity() uint64 { return i.mapper.Granularity() }

// CheckLive has nothing to compare.
func (r *tracker) CheckLive(context.Context) error { return nil }

// Inspect tells of the live blocks.
func (r *DirectResource) Inspect() core.Inspector {
	return directInspector{r.Unsupported.Inspect(), r.blocks}
}

// Released lists the blocks whose free is under way, and the newest 8192 released ones, oldest
// first, until yield returns false. It holds no lock over yield.
func (r *DirectResource) Released(yield func(core.Block) bool) {
	freeing := func(b core.BlockInfo) bool { return b.Block.State == core.Live || yield(b.Block) }
	_ = r.books.list(freeing) && r.books.listGone(yield)
}

// directInspector knows the blocks, and nothing of streams.
type directInspector struct {
	core.Inspector
	list func(yield func(core.BlockInfo) bool)
}

func (i directInspector) Blocks(yield func(core.BlockInfo) bool) { i.list(yield) }

// Withhold takes a live block out of the live bytes whose peak is kept: its owner
// has given it back.
func (r *tracker) Withhold(id core.BlockID, as core.BlockState) {
	b := r.streams.table.lookup(id)
	if b == nil {
		return
	}
	b.mu.Lock()
	ptr := b.core.ID.Ptr
	lives := b.core.ID.Generation == id.Generation && b.core.State == core.Live
	if lives {
		b.stream.books.Withhold(&b.core, &b.entry)
	}
	b.mu.Unlock() // the oracle is told under no lock that the books need
	// Launches that are open on a retired block may still use it.
	if lives && as != core.Retired && r.oracle != nil {
		r.oracle.BlockIsWithheld(ptr)
	}
}

// Withhold is AsyncResource's.
func (r *DirectResource) Withhold(id core.BlockID, as core.BlockState) {
	b := r.books.find(id.Generation)
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.core.State != core.Live {
		return
	}
	r.books.Withhold(&b.core, &b.entry)
	if o := driver.OracleOf(r.drv); o != nil && as != core.Retired {
		o.BlockIsWithheld(b.core.ID.Ptr)
	}
}
