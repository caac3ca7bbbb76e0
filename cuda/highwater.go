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

func (h *highWater) add(c *core.Block, own *books, all *streamTable) {
	h.raise(requestedBytes, int64(c.Requested), own, all)
	h.raise(allBytes, int64(c.Bytes), own, all)
}

func (h *highWater) raise(d int, n int64, own *books, all *streamTable) {
	if take(&own.slack[d], n) {
		return
	}
	m := &h.marks[d]
	if m.claimed.Add(n) <= m.peak.Load() {
		return
	}
	live := m.claimed.Add(-recall(d, own, all))
	for {
		old := m.peak.Load()
		if old >= live || m.peak.CompareAndSwap(old, live) {
			return
		}
	}
}

// take takes n from slack if there is as much.
func take(slack *atomic.Int64, n int64) bool {
	for {
		have := slack.Load()
		if have < n {
			return false
		}
		if slack.CompareAndSwap(have, have-n) {
			return true
		}
	}
}

// recall empties the slack of all streams and returns what there was.
func recall(d int, own *books, all *streamTable) int64 {
	total := own.slack[d].Swap(0)
	if all == nil {
		return total
	}
	total += all.adopted.slack[d].Swap(0)
	for _, s := range all.streams() {
		if s.books.slack[d].Load() != 0 {
			total += s.books.slack[d].Swap(0)
		}
	}
	return total
}

func (h *highWater) sub(c *core.Block, own *books) {
	own.slack[requestedBytes].Add(int64(c.Requested))
	own.slack[allBytes].Add(int64(c.Bytes))
}

// restore undoes a sub: it makes no new peak.
func (h *highWater) restore(c *core.Block, own *books) {
	for d, n := range [dimensions]int64{requestedBytes: int64(c.Requested), allBytes: int64(c.Bytes)} {
		if !take(&own.slack[d], n) {
			h.marks[d].claimed.Add(n)
		}
	}
}

func (h *highWater) addTo(s *core.Stats) {
	s.PeakRequested = clamp(h.marks[requestedBytes].peak.Load())
	s.PeakBytes = clamp(h.marks[allBytes].peak.Load())
}
