package cuda

import "github.com/fencepost-gpu/fencepost/core"

// Blocks lists every block that is not released. It copies a few at a time, so
// that neither its memory nor the time for which it holds up an allocation
// grows with how many there are. No lock is held over yield.
func (r *AsyncResource) Blocks(yield func(core.BlockInfo) bool) {
	var w blockWalk
	r.streams.table.eachBooks(r.streams.table.streams(), func(b *books) {
		w.through(b, yield)
	})
}

// chainsAtOnce is how many chains of a table are looked at under its lock.
const chainsAtOnce = 64

// blockWalk is one listing under way.
type blockWalk struct {
	sightings []sighting
	stopped   bool
}

// sighting is a record that was of that generation when it was found.
type sighting struct {
	generation core.Generation
	record     *block
}

// through lists the blocks of one stream's books. A table grows by doubling, so
// that what hung in chain i of the n at the beginning hangs in one of the chains
// i, i+n, i+2n and so on later: those are looked at together, and each block is
// met once.
func (w *blockWalk) through(b *books, yield func(core.BlockInfo) bool) {
	b.mu.Lock()
	n := b.blocks.chains()
	b.mu.Unlock()
	for from := 0; from < n && !w.stopped; from += chainsAtOnce {
		w.sightings = w.sightings[:0]
		b.mu.Lock()
		for i := from; i < min(from+chainsAtOnce, n); i++ {
			b.blocks.everyNth(i, n, func(r *block) {
				w.sightings = append(w.sightings, sighting{core.Generation(r.generation.Load()), r})
			})
		}
		b.mu.Unlock()
		w.show(yield)
	}
}

func (w *blockWalk) show(yield func(core.BlockInfo) bool) {
	for _, s := range w.sightings {
		s.record.mu.Lock()
		c := s.record.core
		s.record.mu.Unlock()
		if c.ID.Generation == s.generation && !yield(core.BlockInfo{Block: c}) {
			w.stopped = true
			return
		}
	}
}
