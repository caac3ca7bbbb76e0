package cuda

import (
	"math"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

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

// LockStream holds the lock of a leased stream until unlock is called.
func (p *StreamPool) LockStream(id core.StreamID) (unlock func()) {
	s, err := p.table.resolve("LockStream", id)
	if err != nil {
		panic(err)
	}
	s.Lock()
	return s.Unlock
}

var freeStateNames = map[freeState]string{
	waitsForLaunches: "launches", waitsForStream: "stream", waitsForCapture: "capture",
	waitsForRetry: "retry", waitsForUses: "uses", waitsForDevice: "device", waitsForUnmap: "unmap",
}

// WaitsFor is what a retired block waits for, "live" of one that is, and "released" of
// one that left the books. A block that several lists have waits for all of them. Of a
// stream that is locked what is pending is left out.
func (r *AsyncResource) WaitsFor(id core.BlockID) string {
	b := r.streams.table.lookup(id)
	if b == nil {
		return "released"
	}
	b.mu.Lock()
	state, waits := b.core.State, b.waits
	b.mu.Unlock()
	if state == core.Live {
		return "live"
	}
	var found []string
	for _, s := range r.streams.table.everyStream() {
		found = append(found, s.frees.statesOf(b)...)
		if s.TryLock() {
			found = append(found, statesIn(s.frees.pending, b, waitsForDevice)...)
			s.Unlock()
		}
	}
	if found == nil {
		return freeStateNames[waits]
	}
	return strings.Join(found, " and ")
}

func (q *freeQueue) statesOf(b *block) (found []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.parked {
		if p.block == b {
			found = append(found, freeStateNames[p.waits])
		}
	}
	return append(found, statesIn(q.unmapping, b, waitsForUnmap)...)
}

func statesIn(list []pendingFree, b *block, state freeState) (found []string) {
	for _, p := range list {
		if p.block == b {
			found = append(found, freeStateNames[state])
		}
	}
	return found
}

// UseSlabs has a pool that was not used yet grow in slabs of so many pages, by from pages and more.
func UseSlabs(r *PoolResource, pages, from uint64) {
	r.arenas.store.SlabPages, r.arenas.store.SlabsFrom = pages, from
}

// Arenas is how many arenas a pool has.
func Arenas(r *PoolResource) int { return len(*r.arenas.all.Load()) }

// LoseAPage takes a free page out of the ranges of a pool's arenas, until it is put back.
func LoseAPage(r *PoolResource) (putBack func()) {
	for _, l := range *r.arenas.all.Load() {
		if lost, ok := l.cut(r.arenas.page, nil); ok {
			return func() { r.arenas.putBack(lost) }
		}
	}
	panic("no page is free")
}
