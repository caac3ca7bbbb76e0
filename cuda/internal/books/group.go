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
	_         [64]byte
	highWater [sizes]highWater // in one cache line, as all are written together
	_         [64]byte
	peak      [sizes]atomic.Int64 // of the stretches that are over
	// recalling is held by the one who recalls, and guards all and waits.
	recalling sync.Mutex
	all       []*Books
	waits     int // recalls since the last turn that waited for a stream
	// opening is held over the beginning of a stretch that is measured, and over its end. meter
	// is what all books have or are about to; it changes with both locks held.
	opening sync.Mutex
	meter   *meter
}

const (
	// recallsPerTurn is how many recalls that wait for a stream at work a stretch may cost. Such a one takes 200 µs, for all
	// streams, where each of sixteen processors serves one of them.
	recallsPerTurn = 32
	// peakError is the part of the level that may be slack after them; leastSlack may be in any case, so that thirty-two
	// streams keep a block of 1 MiB each.
	peakError  = 64
	leastSlack = 32 << 20
	// allSlack is for streams that keep what they have.
	allSlack = math.MaxInt64
)

// highWater is the high-water level of one size.
type highWater struct {
	claimed atomic.Int64
	// level is the peak of the stretch, which claimed must exceed for a new one. It rises with the
	// lock of some books held, and falls with all of them.
	level atomic.Int64
}

// rise makes the level n at least.
func (m *highWater) rise(n int64) {
	for at := m.level.Load(); n > at && !m.level.CompareAndSwap(at, n); {
		at = m.level.Load()
	}
}

// Add takes books in, for good, whose lock is that of a lane from now on, and whose blocks each shows
// with that held. Nothing may be in them yet.
func (g *Group) Add(b *Books, lane *path.Lane, each func(func(*core.Block, *Entry))) {
	b.mu, b.group, b.each = lane, g, each
	g.recalling.Lock()
	defer g.recalling.Unlock()
	b.meter, b.keep = g.meter, g.keep()
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
	above := false
	for d, n := range short {
		m := &g.highWater[d]
		above = n != 0 && m.claimed.Add(n) > m.level.Load() || above
	}
	if !above {
		return
	}
	g.recalling.Lock()
	defer g.recalling.Unlock()
	for d := range g.highWater { // or somebody has looked meanwhile
		if m := &g.highWater[d]; m.claimed.Load() > m.level.Load() {
			g.look()
			return
		}
	}
}

// look raises the levels to what is live; recalling must be held.
func (g *Group) look() {
	if g.stop() {
		g.waits++
	}
	for d := range g.highWater {
		g.highWater[d].rise(g.recall(Size(d)))
	}
	g.resume()
}

// aheadShare is the part of what may be claimed without a look that a stream takes beyond its
// need: little enough for many streams to find some, and less the less there is.
const aheadShare = 16

// claim claims at least need, and something ahead, if that can be no new peak; else nothing. The
// lock of the books that it is for must be held: then no recall counts before their slack is there.
func (m *highWater) claim(need int64) int64 {
	for {
		claimed := m.claimed.Load()
		room := m.level.Load() - claimed
		if room < need {
			return 0
		}
		n := need + (room-need)/aheadShare
		if m.claimed.CompareAndSwap(claimed, claimed+n) {
			return n
		}
	}
}

// stop locks all books, so that what is freed here and allocated there is not counted twice, and reports whether
// it waited for any; recalling must be held until they are let go.
func (g *Group) stop() (waited bool) {
	for _, b := range g.all {
		if !b.mu.TryLock() {
			waited = true
			b.mu.Lock()
		}
	}
	return waited
}

// resume lets all books go.
func (g *Group) resume() {
	keep := g.keep()
	for _, b := range g.all {
		b.keep = keep
		b.mu.Unlock()
	}
}

// keep is how much slack each stream keeps.
func (g *Group) keep() int64 {
	if g.waits < recallsPerTurn {
		return allSlack
	}
	return max(g.highWater[Requested].level.Load()/peakError, leastSlack) / int64(max(len(g.all), 1))
}

// recall empties the slack of all books and returns what is live; all must be locked.
func (g *Group) recall(d Size) (live int64) {
	slack := int64(0)
	for _, b := range g.all {
		slack += b.slack[d]
		b.slack[d] = 0
	}
	return g.highWater[d].claimed.Add(-slack)
}

// Stretch is the peak between two turns, and what was there when it ended.
type Stretch struct{ Peak, Now int64 }

// Turn ends the stretch of each size and begins the next.
func (g *Group) Turn() (ended [sizes]Stretch) {
	g.recalling.Lock()
	defer g.recalling.Unlock()
	g.stop()
	for d := range g.highWater {
		m := &g.highWater[d]
		peak := m.level.Load()
		g.peak[d].Store(max(g.peak[d].Load(), peak))
		live := g.recall(Size(d))
		m.level.Store(live)
		m.rise(m.claimed.Load()) // who has raised it meanwhile may have gone by the former level
		ended[d] = Stretch{max(peak, live), live}
	}
	g.waits = 0
	g.resume()
	return ended
}

// Recent is the peak of the stretch under way.
func (g *Group) Recent(d Size) int64 {
	g.recalling.Lock()
	defer g.recalling.Unlock()
	return g.highWater[d].level.Load()
}

// highest is the peak since the beginning.
func (g *Group) highest(d Size) uint64 {
	level := g.highWater[d].level.Load() // first: it is in peak before it falls
	return clamp(max(level, g.peak[d].Load()))
}

// AddPeaksTo puts the peaks since the beginning into a snapshot. Each size is looked at
// in a moment of its own, so a free between two looks may leave the peak of a larger size
// below that of a smaller. What took more bytes was live when the smaller peak was, so
// the smaller is a bound of the larger.
func (g *Group) AddPeaksTo(s *core.Stats) {
	s.PeakRequested = g.highest(Requested)
	s.PeakBytes = max(s.PeakRequested, g.highest(Live))
	s.PeakOutstanding = max(s.PeakBytes, g.highest(Outstanding))
}
