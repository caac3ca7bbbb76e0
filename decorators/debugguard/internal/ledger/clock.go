package ledger

import (
	"math"
	"sync"
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
type Clock struct {
	now   func() time.Time
	epoch time.Time
	ticks atomic.Uint32

	mu    sync.Mutex
	timer *time.Timer
	runs  bool
}

func newClock(now func() time.Time) *Clock {
	c := &Clock{now: now, epoch: now()}
	c.ticks.Store(1)
	c.timer = NewTimer(c, (*Clock).tick)
	return c
}

// NewTimer returns a timer that is not set. Where it fires it calls f(v), unless
// nobody else holds v any more: a guard that everybody has pointer can be collected
// without having been closed, and its timers end.
func NewTimer[T any](v *T, f func(*T)) *time.Timer {
	pointer := weak.Make(v)
	timer := time.AfterFunc(math.MaxInt64, func() {
		if v := pointer.Value(); v != nil {
			f(v)
		}
	})
	timer.Stop()
	return timer
}

// Instant is the time now.
func (c *Clock) Instant() Instant { return Instant(c.ticks.Load()) }

// Now is the time of [Clock.Instant].
func (c *Clock) Now() time.Time { return c.Time(c.Instant()) }

// Time is when i was; zero for no instant.
func (c *Clock) Time(i Instant) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return c.epoch.Add(time.Duration(i-1) * Resolution)
}

// Start makes the clock run until Stop, or until it is collected.
func (c *Clock) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = true
	c.move()
}

// Stop lets the clock stand still.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = false
	c.timer.Stop()
}

// tick is what the timer does.
func (c *Clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs {
		c.move()
	}
}

// move reads the real clock, and sets the timer for the next time. Time never goes
// back here. mu must be held.
func (c *Clock) move() {
	elapsed := uint32(min(max(c.now().Sub(c.epoch)/Resolution, 0), math.MaxUint32-1)) + 1
	c.ticks.Store(max(elapsed, c.ticks.Load()))
	c.timer.Reset(Resolution)
}
