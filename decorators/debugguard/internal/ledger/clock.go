package ledger

import (
	"math"
	"sync/atomic"
	"time"
	"weak"
)

// Resolution is that of the ledger's times.
const Resolution = 10 * time.Millisecond

// Instant is a time of the ledger, in units of resolution since its clock was
// made, and 1 at the start; zero is no time. It ends after 497 days and stands
// still then.
type Instant uint32

// Clock is the ledger's clock. Reading it costs a load: a timer moves it
// while the guard is on, so that no operation has to read the real clock. The
// time that an operation notes is up to one tick old, and older if the process
// has no processor left for the timer.
//
// The timer holds the clock by a weak pointer only. A guard that nobody uses any
// more can so be collected without having been closed, and its timer ends.
type Clock struct {
	now    func() time.Time
	epoch  time.Time
	ticks  atomic.Uint32
	runs   atomic.Bool
	paused atomic.Bool
}

func newClock(now func() time.Time) *Clock {
	c := &Clock{now: now, epoch: now()}
	c.ticks.Store(1)
	return c
}

// Instant is the time now.
func (c *Clock) Instant() Instant { return Instant(c.ticks.Load()) }

// Time is when i was; zero for no instant.
func (c *Clock) Time(i Instant) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return c.epoch.Add(time.Duration(i-1) * Resolution)
}

// Start makes the clock run until stop, or until the clock is collected.
func (c *Clock) Start() {
	c.paused.Store(false)
	c.move()
	if c.runs.CompareAndSwap(false, true) {
		rearm(weak.Make(c))
	}
}

// Stop lets the clock stand still after its next tick.
func (c *Clock) Stop() { c.paused.Store(true) }

// rearm sets the timer for the next tick.
func rearm(weakClock weak.Pointer[Clock]) {
	time.AfterFunc(Resolution, func() {
		c := weakClock.Value()
		if c == nil {
			return
		}
		if c.paused.Load() {
			c.runs.Store(false)
			if c.paused.Load() || !c.runs.CompareAndSwap(false, true) {
				return
			}
		}
		c.move()
		rearm(weakClock)
	})
}

// move reads the real clock. Time never goes back here.
func (c *Clock) move() {
	elapsed := uint32(min(max(c.now().Sub(c.epoch)/Resolution, 0), math.MaxUint32-1)) + 1
	for {
		was := c.ticks.Load()
		if elapsed <= was || c.ticks.CompareAndSwap(was, elapsed) {
			return
		}
	}
}
