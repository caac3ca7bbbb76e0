package cuda

import "math"

// CountFrom makes the streams that p makes from now on count from seq, as if
// streams that are gone had come that far.
func (p *StreamPool) CountFrom(seq uint64) { p.table.order.CountFrom(seq) }

// NearestToTheEnd is how far the stream that has counted furthest is from the
// last sequence number.
func (p *StreamPool) NearestToTheEnd() uint64 {
	nearest := uint64(math.MaxUint64)
	for _, s := range p.table.everyStream() {
		s.Lock()
		nearest = min(nearest, math.MaxUint64-s.Seq())
		s.Unlock()
	}
	return nearest
}

// Slots are the places in the clocks that were ever used.
func (p *StreamPool) Slots() int { return p.table.order.Slots() }
