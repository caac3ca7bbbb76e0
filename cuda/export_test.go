package cuda

import "math"

// CountFrom makes the streams that p makes from now on count from seq, as if
// streams that are gone had come that far.
func (p *StreamPool) CountFrom(seq uint64) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	for range 64 {
		p.table.free = append(p.table.free, freeSlot{slot: p.table.next, seq: seq})
		p.table.next++
	}
}

// NearestToTheEnd is how far the stream that has counted furthest is from the
// last sequence number.
func (p *StreamPool) NearestToTheEnd() uint64 {
	nearest := uint64(math.MaxUint64)
	for _, s := range p.table.everyStream() {
		s.mu.Lock()
		nearest = min(nearest, math.MaxUint64-s.seq)
		s.mu.Unlock()
	}
	return nearest
}

// Slots are the places in the clocks that were ever used.
func (p *StreamPool) Slots() int {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	return p.table.next
}
