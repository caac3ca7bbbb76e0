package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// The sizes whose peaks are kept: what callers asked for and what that takes
// of the device, both of live blocks, and what all blocks take of the device
// until their free is completed.
const (
	requestedBytes = iota
	liveBytes
	outstandingBytes
	dimensions
)

type sizes [dimensions]int64

// highWater keeps the exact peaks of memory, over all streams together, without
// a word that every allocation and free writes.
//
// # The protocol
//
// It is the same for each size; take live bytes. claimed is what is live plus the
// slack of all streams. A free adds its bytes to its stream's slack and leaves
// claimed alone; an allocation takes them from there if it can. Only an
// allocation for which the slack does not do raises claimed, and only if that
// goes beyond the peak could there be a new one: then the slack of every stream
// is recalled, which makes claimed the live bytes, and the peak is raised to that.
//
// # Stretches
//
// Beside the peak since the beginning there is that of the stretch since the last
// turn. [PeakWindows] makes turns, once a second; without it the stretch is the
// whole life. A stretch begins with what is live, so there are more new highs in
// it and more recalls. They are bounded: after looksPerTurn of them in one stretch
// only a new peak since the beginning is worth another. From then on the
// stretch's peak is taken to be claimed, which does not fall between recalls: that
// is the truth at least, and at most the sum of what each stream had at its own
// highest, and never more than the peak since the beginning.
type highWater struct {
	marks [dimensions]highWaterMark
	// recalling is held by the one who recalls.
	recalling sync.Mutex
}

// looksPerTurn is how many recalls a stretch may cost: a second with as many
// spends a few milliseconds on them.
const looksPerTurn = 1024

type highWaterMark struct {
	_       [64]byte
	claimed atomic.Int64
	// peak is that since the beginning, look what claimed must exceed for
	// anybody to look. They change with recalling held.
	peak, look atomic.Int64
	// recent is the peak of the stretch, looks the recalls in it; recalling
	// guards both.
	recent int64
	looks  int
	_      [24]byte
}

// takeLive takes what c needs of live memory from the slack and returns the sizes
// for which there was not as much; b.mu must be held. What is withheld from its
// owner is not live.
func (b *books) takeLive(c *core.Block, withheld bool) (short sizes) {
	if !withheld {
		short[requestedBytes] = take(&b.slack[requestedBytes], int64(c.Requested))
		short[liveBytes] = take(&b.slack[liveBytes], int64(c.Bytes))
	}
	return short
}

// take takes n from the slack, or nothing and returns n if there is not as much.
func take(slack *int64, n int64) (short int64) {
	if *slack < n {
		return n
	}
	*slack -= n
	return 0
}

// giveLive undoes takeLive.
func (b *books) giveLive(c *core.Block, withheld bool) {
	if !withheld {
		b.slack[requestedBytes] += int64(c.Requested)
		b.slack[liveBytes] += int64(c.Bytes)
	}
}

// raise claims what the slack of own did not do for. No lock may be held.
func (h *highWater) raise(short sizes, own *books, all *streamTable) {
	for d, n := range short {
		m := &h.marks[d]
		if n == 0 || m.claimed.Add(n) <= m.look.Load() {
			continue
		}
		h.recalling.Lock()
		if m.claimed.Load() > m.look.Load() { // or somebody has looked meanwhile
			m.note(m.recall(d, own, all))
			m.looks++
		}
		h.recalling.Unlock()
	}
}

// note takes in what a recall found; recalling must be held.
func (m *highWaterMark) note(claimed, live int64) {
	m.peak.Store(max(m.peak.Load(), live))
	m.recent = max(m.recent, live, m.bound(claimed))
	if m.looks+1 < looksPerTurn {
		m.look.Store(m.recent)
	} else {
		m.look.Store(m.peak.Load())
	}
}

// bound is what may have been live without a look, 0 if nothing more than recent;
// recalling must be held.
func (m *highWaterMark) bound(claimed int64) int64 {
	if m.looks < looksPerTurn {
		return 0
	}
	return min(claimed, m.peak.Load())
}

// recall empties the slack of all streams and returns what was claimed and what
// is live. It holds the locks of all books meanwhile: what is freed here and
// allocated there would be counted twice.
func (m *highWaterMark) recall(d int, own *books, all *streamTable) (claimed, live int64) {
	if all == nil {
		own.mu.Lock()
		defer own.mu.Unlock()
		slack := own.emptySlack(d)
		live = m.claimed.Add(-slack)
		return live + slack, live
	}
	streams := all.streams()
	var slack int64
	all.eachBooks(streams, func(b *books) {
		b.mu.Lock()
		slack += b.emptySlack(d)
	})
	live = m.claimed.Add(-slack)
	all.eachBooks(streams, func(b *books) { b.mu.Unlock() })
	return live + slack, live
}

func (b *books) emptySlack(d int) int64 {
	n := b.slack[d]
	b.slack[d] = 0
	return n
}

// level is a peak, and what was there when the stretch ended.
type level struct{ peak, now int64 }

// turn ends the stretch of one size and begins the next.
func (h *highWater) turn(d int, own *books, all *streamTable) level {
	h.recalling.Lock()
	defer h.recalling.Unlock()
	m := &h.marks[d]
	claimed, live := m.recall(d, own, all)
	m.note(claimed, live)
	ended := level{m.recent, live}
	m.recent, m.looks = live, 0
	m.look.Store(live)
	return ended
}

// recent is the peak of the stretch under way.
func (h *highWater) recent(d int) int64 {
	h.recalling.Lock()
	defer h.recalling.Unlock()
	m := &h.marks[d]
	return max(m.recent, m.bound(m.claimed.Load()))
}

func (h *highWater) addTo(s *core.Stats) {
	s.PeakRequested = clamp(h.marks[requestedBytes].peak.Load())
	s.PeakBytes = clamp(h.marks[liveBytes].peak.Load())
	s.PeakOutstanding = clamp(h.marks[outstandingBytes].peak.Load())
}
