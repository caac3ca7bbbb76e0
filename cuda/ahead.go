package cuda

import (
	"slices"
	"sync/atomic"
	"time"
)

// ahead is pages that are mapped before a stream needs them. A request waits for the pages that it
// needs; what the pool grows by besides the background maps, for the same arena, from which other streams
// may take it over. Another request that needs the device's memory before that maps it first. arenas.growing
// guards all but start, which is set once, and waiting.
type ahead struct {
	// start runs a function in the background while the memory is open; nil if nothing runs there.
	start func(func() error)
	arena *arena
	// at is where pages are to be mapped, and left how many bytes of them.
	at, left uint64
	// by is how many pages the pool grew by at grown.
	by    uint64
	grown time.Time
	// demand is how many pages more came into use between two ticks, at most, while ticks are compared. inUse
	// was at the last one, and more came at needed.
	demand, inUse uint64
	compared      bool
	needed        time.Time
	// waiting is how many pages the requests lack that wait for growing, of a large request growth: pages of
	// others do little for it.
	waiting atomic.Int64
}

// A pool that grows again within growsSoon grows by twice as many pages as before, but by at most one for
// growthShare that it holds. For each page that a waiting request lacks it grows by growthWaiting: then
// those requests, and the next ones of their streams, need no call of the driver.
const (
	growsSoon     = 100 * time.Millisecond
	growthShare   = 256
	growthWaiting = 6
)

// demandLasts is how long pages are kept ready for demand that has ended.
const demandLasts = time.Second

// growBy is how many pages a pool that holds so many grows by, if it may, for a request that needs
// some; growing is held.
func (a *ahead) growBy(now time.Time, needed, held uint64) uint64 {
	by := uint64(growth)
	if now.Sub(a.grown) < growsSoon {
		by = max(by, min(2*a.by, held/growthShare))
	}
	a.by, a.grown = by, now
	if waiting := uint64(a.waiting.Load()); waiting > 0 {
		by = max(by, needed+growthWaiting*waiting)
	}
	return by
}

// mapAhead makes the background map so many bytes of pages for an arena; growing is held.
func (m *arenas) mapAhead(l *arena, at, bytes uint64) {
	m.ahead.arena, m.ahead.at, m.ahead.left = l, at, bytes
	m.ahead.start(func() error {
		m.growing.Lock()
		defer m.unlockGrowing()
		if m.closed {
			return nil
		}
		return m.fillAhead()
	})
}

// fillAhead maps what is to be mapped ahead. An error for want of memory is no failure: the next stream that
// needs the device's memory is told. growing is held.
func (m *arenas) fillAhead() error {
	l, at, left := m.ahead.arena, m.ahead.at, m.ahead.left
	m.ahead.left = 0
	if left == 0 || !slices.Contains(*m.all.Load(), l) { // its stream was given up
		return nil
	}
	err := m.fill(l, at, left, 0)
	if err == nil {
		m.ahead.at += left
	}
	return err
}

// keepReady maps pages before a request lacks them, on a tick of the reaper: while the pool grows, as many are
// free as came into use between two ticks, but no more than the pool grows by at a time. growing is held.
func (m *arenas) keepReady(now time.Time) {
	a := &m.ahead
	if a.start == nil || now.Sub(a.grown) >= demandLasts && now.Sub(a.needed) >= demandLasts {
		a.compared = false
		return
	}
	_ = m.fillAhead()
	held, free := m.store.Held()/m.page, m.store.Spare()/m.page
	for _, l := range *m.all.Load() {
		free += l.freePages() / m.page
	}
	inUse := held - min(held, free)
	switch {
	case !a.compared:
		a.compared, a.demand = true, 0
	case inUse > a.inUse:
		a.demand, a.needed = max(a.demand, inUse-a.inUse), now
	}
	a.inUse = inUse
	if ready := min(a.demand, max(growth, held/growthShare)); ready > free {
		a.left = min((ready-free)*m.page, m.room(a.at))
		_ = m.fillAhead()
	}
}
