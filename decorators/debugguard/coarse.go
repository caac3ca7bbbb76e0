package debugguard

import (
	"math"
	"sync/atomic"
	"time"
	"weak"
)

// resolution is that of the ledger's times.
const resolution = 10 * time.Millisecond

// instant is a time of the ledger, in units of resolution since its clock was
// made, and 1 at the start; zero is no time. It ends after 497 days and stands
// still then.
type instant uint32

// coarse is the ledger's clock. Reading it costs a load: a timer moves it
// while the guard is on, so that no operation reads the real clock for it.
// The time that an operation notes is up to a tick old, and older if the
// process has no processor left for the timer.
type coarse struct {
	now    func() time.Time
	epoch  time.Time
	ticks  atomic.Uint32
	runs   atomic.Bool
	paused atomic.Bool
}

func newCoarse(now func() time.Time) *coarse {
	c := &coarse{now: now, epoch: now()}
	c.ticks.Store(1)
	return c
}

func (c *coarse) instant() instant { return instant(c.ticks.Load()) }

// time is when i was; zero for no instant.
func (c *coarse) time(i instant) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return c.epoch.Add(time.Duration(i-1) * resolution)
}

// start makes the clock run until stop, or until nobody has it any more.
func (c *coarse) start() {
	c.paused.Store(false)
	c.move()
	if c.runs.CompareAndSwap(false, true) {
		rearm(weak.Make(c))
	}
}

// stop lets the clock stand still after its next tick.
func (c *coarse) stop() { c.paused.Store(true) }

func rearm(held weak.Pointer[coarse]) {
	time.AfterFunc(resolution, func() {
		c := held.Value()
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
		rearm(held)
	})
}

// move reads the real clock. Time never goes back here.
func (c *coarse) move() {
	elapsed := uint32(min(max(c.now().Sub(c.epoch)/resolution, 0), math.MaxUint32-1)) + 1
	for {
		was := c.ticks.Load()
		if elapsed <= was || c.ticks.CompareAndSwap(was, elapsed) {
			return
		}
	}
}
