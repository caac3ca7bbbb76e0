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
	// recalling is held over a look and over a new level, and guards what follows.
	recalling sync.Mutex
	all       []*Books
	waits     int          // looks since the last turn that waited for a stream
	sure      [sizes]int64 // the most that a look has found live in the stretch
	looked    uint64       // books that looks have looked at
	kept      int64        // what all books were told to keep, 0 for all
	// opening is held over the beginning of a stretch that is measured, and over its end. meter
	// is what all books have or are about to; it changes with both locks held.
	opening sync.Mutex
	meter   *meter
}

const (
	// recallsPerTurn is how many recalls that wait for a stream at work a stretch may cost. Such a one takes 200 µs, for all
	// streams, where each of sixteen processors serves one of them.
	recallsPerTurn = 32
	// peakError is the part of the level that may be slack after them, and by which a level rises
	// without a look; leastSlack may be slack in any case, so that thirty-two streams keep a block
	// of 1 MiB each.
	peakError  = 64
	leastSlack = 32 << 20
	// allSlack is for streams that keep what they have.
	allSlack = math.MaxInt64
)

// highWater is the high-water level of one size.
type highWater struct {
	claimed atomic.Int64
	// level is the peak of the stretch, which claimed must exceed for a new one. It rises with the
	// lock of some books held or recalling, and falls with recalling held.
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
	for d := range g.highWater { // or another has looked meanwhile
		m := &g.highWater[d]
		if claimed := m.claimed.Load(); claimed > g.sure[d]+g.unsure(g.sure[d]) && claimed > m.level.Load() {
			g.look()
			return
		}
	}
	g.rise()
}

// fewStreams is up to how many a look costs little enough for each new peak.
const fewStreams = 64

// unsure is by how much a level may be above what was found live; recalling must be held.
func (g *Group) unsure(sure int64) int64 {
	if len(g.all) <= fewStreams {
		return 0
	}
	return sure / peakError
}

// rise makes the levels what is claimed at least; recalling must be held.
func (g *Group) rise() {
	for d := range g.highWater {
		m := &g.highWater[d]
		m.rise(m.claimed.Load())
	}
}

// mostPasses bounds the passes of a look. After them it takes claimed for live, although streams
// free more during each pass than a level may be wrong by.
const mostPasses = 4

// look raises the levels to the live bytes; recalling must be held. It locks one stream's books at
// a time. Bytes that are freed behind it and allocated ahead of it are claimed twice, so it passes
// once more after a new level, and again while much is freed.
func (g *Group) look() {
	waited := false
	for pass := range mostPasses {
		recalled, waits := g.recall()
		waited = waited || waits
		higher, moved := false, false
		for d := range g.highWater {
			m := &g.highWater[d]
			claimed := m.claimed.Load()
			higher = higher || claimed > m.level.Load()
			moved = moved || recalled[d] > claimed/peakError
		}
		if !higher || pass > 0 && !moved {
			break
		}
	}
	if waited {
		g.waits++
	}
	for d := range g.highWater {
		g.sure[d] = max(g.sure[d], g.highWater[d].claimed.Load())
	}
	g.rise()
	g.share()
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

// recall takes the slack of all books from what is claimed, and returns it and whether a stream was
// at work; recalling must be held.
func (g *Group) recall() (recalled [sizes]int64, waited bool) {
	for _, b := range g.all {
		if !b.mu.TryLock() {
			waited = true
			b.mu.Lock()
		}
		for d, slack := range b.slack {
			if slack != 0 {
				b.slack[d] = 0
				g.highWater[d].claimed.Add(-slack)
				recalled[d] += slack
			}
		}
		b.mu.Unlock()
	}
	g.looked += uint64(len(g.all))
	return recalled, waited
}

// share tells all books how much slack they keep, if that is another amount now; recalling must be
// held.
func (g *Group) share() {
	keep := g.keep()
	if keep == g.kept || g.kept == 0 && keep == allSlack {
		return
	}
	g.kept = keep
	for _, b := range g.all {
		b.mu.Lock()
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

// Stretch is the peak between two turns, and what was there when it ended.
type Stretch struct{ Peak, Now int64 }

// Turn ends the stretch of each size and begins the next.
func (g *Group) Turn() (ended [sizes]Stretch) {
	g.recalling.Lock()
	defer g.recalling.Unlock()
	g.recall()
	for d := range g.highWater {
		m := &g.highWater[d]
		peak := m.level.Load()
		g.peak[d].Store(max(g.peak[d].Load(), peak))
		live := m.claimed.Load()
		peak = max(m.level.Swap(live), peak)
		g.peak[d].Store(max(g.peak[d].Load(), peak))
		ended[d] = Stretch{max(peak, live), live}
	}
	g.waits = 0
	g.share()
	g.pass()
	for d := range g.highWater {
		g.highWater[d].rise(g.highWater[d].claimed.Load()) // of those who claimed by the former level
		g.sure[d] = g.highWater[d].level.Load()
	}
	return ended
}

// pass waits for those who have books now: they have seen what was written before. recalling must
// be held.
func (g *Group) pass() {
	for _, b := range g.all {
		b.mu.Lock()
		b.mu.Unlock() //nolint:staticcheck,gocritic // an empty section is the purpose
	}
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
