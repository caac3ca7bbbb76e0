package cuda

import (
	"sync"
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
type highWater struct {
	marks [dimensions]mark
	// recalling is held by the one who recalls.
	recalling sync.Mutex
}

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
		h.recalling.Lock()
		live := m.recall(d, own, all)
		if live > m.peak.Load() {
			m.peak.Store(live)
		}
		h.recalling.Unlock()
	}
}

// recall empties the slack of all streams and returns what is live. It holds
// the locks of all books meanwhile: what is freed here and allocated there
// would be counted twice.
func (m *mark) recall(d int, own *books, all *streamTable) int64 {
	if all == nil {
		own.mu.Lock()
		defer own.mu.Unlock()
		return m.claimed.Add(-own.emptySlack(d))
	}
	streams := all.streams()
	var slack int64
	all.eachBooks(streams, func(b *books) {
		b.mu.Lock()
		slack += b.emptySlack(d)
	})
	live := m.claimed.Add(-slack)
	all.eachBooks(streams, func(b *books) { b.mu.Unlock() })
	return live
}

func (b *books) emptySlack(d int) int64 {
	n := b.slack[d]
	b.slack[d] = 0
	return n
}

func (h *highWater) addTo(s *core.Stats) {
	s.PeakRequested = clamp(h.marks[requestedBytes].peak.Load())
	s.PeakBytes = clamp(h.marks[allBytes].peak.Load())
}
