package books

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// Group is the books of one backend with the peaks of all of them together. The zero
// value is empty and ready for use.
type Group struct {
	highWater [sizes]highWater
	// recalling is held by the one who recalls, and guards all.
	recalling sync.Mutex
	all       []*Books
	// opening is held over the beginning of a stretch that is measured, and over its end. meter
	// is what all books have or are about to; it changes with both locks held.
	opening sync.Mutex
	meter   *meter
}

// looksPerTurn is how many recalls a stretch may cost: a second with as many
// spends a few milliseconds on them.
const looksPerTurn = 1024

// highWater is the high-water level of one size: its peak.
type highWater struct {
	_       [64]byte
	claimed atomic.Int64
	// peak is that since the beginning, look what claimed must exceed for
	// anybody to look. They change with recalling held.
	peak, look atomic.Int64
	// looked reports that the stretch has had all its looks.
	looked atomic.Bool
	// recent is the peak of the stretch, looks the recalls in it; recalling
	// guards both.
	recent int64
	looks  int
	_      [16]byte
}

// noLevel is the level at which to look while it falls: whatever is claimed is above.
const noLevel = math.MinInt64

// Add takes books in, for good, whose lock is that of a lane from now on, and whose blocks each shows
// with that held. Nothing may be in them yet.
func (g *Group) Add(b *Books, lane *path.Lane, each func(func(*core.Block, *Entry))) {
	b.mu, b.group, b.each = lane, g, each
	g.recalling.Lock()
	defer g.recalling.Unlock()
	b.meter = g.meter
	g.all = append(g.all, b)
}

// HoldRecalls lets no allocation raise a peak until release is called, for tests: it is
// in the books by then, and has not returned.
func (g *Group) HoldRecalls() (release func()) {
	g.recalling.Lock()
	return g.recalling.Unlock
}

// Raise claims what the slack of books of the group did not do for. No lock may be held.
func (g *Group) Raise(short Shortage) {
	if short != (Shortage{}) {
		g.raise(short)
	}
}

func (g *Group) raise(short Shortage) {
	var above chosen
	for d, n := range short {
		m := &g.highWater[d]
		above[d] = n != 0 && m.claimed.Add(n) > m.look.Load()
	}
	if above == (chosen{}) {
		return
	}
	g.recalling.Lock()
	defer g.recalling.Unlock()
	for d := range above {
		m := &g.highWater[d]
		above[d] = above[d] && m.claimed.Load() > m.look.Load() // or somebody has looked meanwhile
	}
	g.look(above)
}

// aheadShare is the part of what may be claimed without a look that a stream takes beyond its
// need: little enough for many streams to find some, and less the less there is.
const aheadShare = 16

// claim claims at least need, and something ahead, if that can be no new peak; else nothing. The
// lock of the books that it is for must be held: then no recall counts before their slack is there.
func (m *highWater) claim(need int64) int64 {
	for {
		claimed, look := m.claimed.Load(), m.look.Load()
		room := look - claimed
		if look == noLevel || room < need {
			return 0
		}
		n := need
		if !m.looked.Load() { // or what is claimed ahead would count to the peak of the stretch
			n += (room - need) / aheadShare
		}
		if m.claimed.CompareAndSwap(claimed, claimed+n) {
			return n
		}
	}
}

// note takes in what a recall found; recalling must be held.
func (m *highWater) note(claimed, live int64) {
	m.peak.Store(max(m.peak.Load(), live))
	m.recent = max(m.recent, live, m.bound(claimed))
}

// setLevel sets what claimed may be without a look; recalling must be held.
func (m *highWater) setLevel() {
	if m.looks < looksPerTurn {
		m.look.Store(m.recent)
		return
	}
	m.looked.Store(true)
	m.look.Store(m.peak.Load())
}

// bound is what may have been live without a look, 0 if nothing more than recent;
// recalling must be held.
func (m *highWater) bound(claimed int64) int64 {
	if m.looks < looksPerTurn {
		return 0
	}
	return min(claimed, m.peak.Load())
}

// chosen is some of the sizes.
type chosen [sizes]bool

// look looks what is live of the sizes chosen; recalling must be held.
func (g *Group) look(of chosen) {
	if of == (chosen{}) {
		return
	}
	claimed, live := g.recall(of)
	for d := range of {
		if m := &g.highWater[d]; of[d] {
			m.note(claimed[d], live[d])
			m.looks++
			m.setLevel()
		}
	}
}

// recall empties the slack of all streams, of the sizes chosen, and returns what was claimed and what
// is live; recalling must be held. It holds the locks of all books meanwhile: what is
// freed here and allocated there would be counted twice.
func (g *Group) recall(of chosen) (claimed, live [sizes]int64) {
	var slack [sizes]int64
	for _, b := range g.all {
		b.mu.Lock()
		for d := range of {
			if of[d] {
				slack[d] += b.emptySlack(Size(d))
			}
		}
	}
	for d := range of {
		if of[d] {
			live[d] = g.highWater[d].claimed.Add(-slack[d])
			claimed[d] = live[d] + slack[d]
		}
	}
	for _, b := range g.all {
		b.mu.Unlock()
	}
	return claimed, live
}

// Stretch is the peak between two turns, and what was there when it ended.
type Stretch struct{ Peak, Now int64 }

// Turn ends the stretch of one size and begins the next.
func (g *Group) Turn(d Size) Stretch {
	g.recalling.Lock()
	defer g.recalling.Unlock()
	m := &g.highWater[d]
	m.look.Store(noLevel)
	var of chosen
	of[d] = true
	claimed, live := g.recall(of)
	m.note(claimed[d], live[d])
	ended := Stretch{m.recent, live[d]}
	m.recent, m.looks = live[d], 0
	m.looked.Store(false)
	m.setLevel()
	return ended
}

// Recent is the peak of the stretch under way.
func (g *Group) Recent(d Size) int64 {
	g.recalling.Lock()
	defer g.recalling.Unlock()
	m := &g.highWater[d]
	return max(m.recent, m.bound(m.claimed.Load()))
}

// AddPeaksTo puts the peaks since the beginning into a snapshot. Each size is looked at
// in a moment of its own, so a free between two looks may leave the peak of a larger size
// below that of a smaller. What took more bytes was live when the smaller peak was, so
// the smaller is a bound of the larger.
func (g *Group) AddPeaksTo(s *core.Stats) {
	s.PeakRequested = clamp(g.highWater[Requested].peak.Load())
	s.PeakBytes = max(s.PeakRequested, clamp(g.highWater[Live].peak.Load()))
	s.PeakOutstanding = max(s.PeakBytes, clamp(g.highWater[Outstanding].peak.Load()))
}
