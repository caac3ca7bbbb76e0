package monotime

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// line is how the time follows from the counter. It is never changed.
type line struct {
	// from is the counter at start, and the line is good for so many ticks; for none, if
	// the counter is not to be followed.
	from, good uint64
	// rate is in nanoseconds a tick; see point.
	rate  uint64
	start Instant
	// end is where a good line ends, and when another calibration is due if it is good
	// for nothing.
	end Instant
	_   [24]byte // makes 64 bytes: a cache line
}

const (
	// interval is how long a line is good.
	interval = Instant(100 * time.Millisecond)
	// point is how many bits of a rate are behind the point.
	point = 32
	// agreeing rates differ by less than one part in so many.
	agreeing = 1 << 14
)

// current is the line in force.
var current atomic.Pointer[line]

// calibrating is held while the next line is drawn, from what is known of the counter;
// other readers go on without waiting.
var (
	calibrating sync.Mutex
	known       calibration
)

func init() {
	known.follow, known.last = hasConstantRate(), takeReading()
	current.Store(&line{end: interval})
}

// beyond is now, of which the line does not tell.
func (l *line) beyond() Instant {
	now := system()
	if (l.good > 0 || now >= l.end) && calibrating.TryLock() {
		if current.Load() == l {
			r := takeReading()
			noteZero(r.at(), r.time.Add(-time.Duration(r.at())))
			current.Store(known.next(l, r))
		}
		calibrating.Unlock()
	}
	return l.after(now)
}

// after is now, or where the line ended if it was a little fast, so that the time does not
// go back.
func (l *line) after(now Instant) Instant {
	if l.good > 0 && l.end > now && l.end < now+Instant(Error) {
		return l.end
	}
	return now
}

// reading is the counter and the clocks at one instant.
type reading struct {
	ticks uint64
	time  time.Time
}

func (r reading) at() Instant { return Instant(r.time.Sub(processStart)) }

// takeReading reads the clock between two readings of the counter, of which it takes the
// closest of three.
func takeReading() (r reading) {
	closest := uint64(math.MaxUint64)
	for range 3 {
		before := ticks()
		t := time.Now()
		if apart := ticks() - before; apart < closest {
			closest, r = apart, reading{before + apart/2, t}
		}
	}
	return r
}

// calibration is what is known of the counter.
type calibration struct {
	// follow says that the processor calls the rate constant.
	follow bool
	last   reading
	// rate is that up to the last reading, 0 if it is not known.
	rate uint64
}

// next is the line from a reading on, after a line was in force. It is good for nothing if
// the counter's rate has not been the same twice.
func (c *calibration) next(was *line, r reading) *line {
	now, before := r.at(), c.rate
	c.rate = rateOf(now-c.last.at(), r.ticks-c.last.ticks)
	c.last = r
	if !c.follow || before == 0 || max(c.rate, before)-min(c.rate, before) > before/agreeing {
		return &line{end: now + interval}
	}
	// A line that begins ahead of the clock meets it at its end.
	start := was.after(now)
	good := uint64(interval) << point / c.rate
	rate := c.rate - c.rate*uint64(start-now)/uint64(interval)
	return &line{from: r.ticks, good: good, rate: rate, start: start, end: start + nanoseconds(good, rate)}
}

// rateOf is the rate of a counter, 0 if it makes no sense.
func rateOf(elapsed Instant, counted uint64) uint64 {
	if elapsed <= 0 || uint64(elapsed)>>(64-point) >= counted {
		return 0
	}
	rate, _ := bits.Div64(uint64(elapsed)>>(64-point), uint64(elapsed)<<point, counted)
	return rate
}

// nanoseconds is the time of so many ticks, fewer than four seconds have.
func nanoseconds(counted, rate uint64) Instant { return Instant(counted * rate >> point) }

// SystemOnly makes Now read the system's clock until the function that it returns is
// called. It is for tests in which the time is not real (testing/synctest).
func SystemOnly() (until func()) {
	calibrating.Lock()
	defer calibrating.Unlock()
	current.Store(&line{end: math.MaxInt64})
	return func() { current.Store(&line{}) }
}
