package cuda

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// The sizes whose peaks are kept.
const (
	requestedBytes = iota
	allBytes
	dimensions
)

type sizes [dimensions]int64

func sizesOf(c *core.Block) sizes {
	return sizes{requestedBytes: int64(c.Requested), allBytes: int64(c.Bytes)}
}

// highWater keeps the exact peaks of live memory, over all streams together,
// without a word that every allocation and free writes.
//
// # The protocol
//
// claimed is what is live plus the slack of all streams. A free adds its bytes
// to its stream's slack and leaves claimed alone; an allocation takes them
// from there if it can. Only an allocation for which the slack does not do
// raises claimed, and only if that goes beyond the peak could there be a new
// one: then the slack of every stream is recalled, which makes claimed the
// live bytes, and the peak is raised to that.
type highWater struct{ marks [dimensions]mark }

type mark struct {
	_             [64]byte
	claimed, peak atomic.Int64
	_             [48]byte
}

// takeSlack takes what c needs from the slack and returns the sizes for which
// there was not as much; b.mu must be held.
func (b *books) takeSlack(c *core.Block) (short sizes) {
	for d, n := range sizesOf(c) {
		if b.slack[d] >= n {
			b.slack[d] -= n
		} else {
			short[d] = n
		}
	}
	return short
}

func (b *books) giveSlack(c *core.Block) {
	for d, n := range sizesOf(c) {
		b.slack[d] += n
	}
}

// raise claims what the slack of own did not do for. No lock may be held.
func (h *highWater) raise(short sizes, own *books, all *streamTable) {
	for d, n := range short {
		m := &h.marks[d]
		if n == 0 || m.claimed.Add(n) <= m.peak.Load() {
			continue
		}
		live := m.claimed.Add(-recall(d, own, all))
		for old := m.peak.Load(); old < live && !m.peak.CompareAndSwap(old, live); old = m.peak.Load() {
		}
	}
}

// recall empties the slack of all streams and returns what there was.
func recall(d int, own *books, all *streamTable) int64 {
	total := own.emptySlack(d)
	if all == nil {
		return total
	}
	total += all.adopted.emptySlack(d)
	for _, s := range all.streams() {
		total += s.books.emptySlack(d)
	}
	return total
}

func (b *books) emptySlack(d int) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.slack[d]
	b.slack[d] = 0
	return n
}

// restore claims again what a failed free had given: it makes no new peak.
func (h *highWater) restore(short sizes) {
	for d, n := range short {
		h.marks[d].claimed.Add(n)
	}
}

func (h *highWater) addTo(s *core.Stats) {
	s.PeakRequested = clamp(h.marks[requestedBytes].peak.Load())
	s.PeakBytes = clamp(h.marks[allBytes].peak.Load())
}
