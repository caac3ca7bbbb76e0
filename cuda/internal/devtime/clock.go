// Package devtime puts times of a device on the host's clock.
//
// The device tells how long one record of an event came after another, and nothing else. So now
// and then a [Clock] records an event of its own, a base, on a stream where nothing else is, and reads the
// host's clock before and after. How far the two readings are apart bounds the error of one base. The
// two clocks run at different rates, by some tens of microseconds in a second, and
// the host's is slewed besides, so a line through the newest bases says how long the host took for a second of
// the device, and corrects the newest as far as its readings allow.
package devtime

import (
	"cmp"
	"errors"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Interval is how old a base may be, as the host's time: older than that it is renewed.
// Reach is the longest difference that is taken of two records: the driver's answer is a float32 of
// milliseconds, so of 4 s it is right within 0.24 µs, and of a quarter of an hour within 62.
const (
	Interval = 2 * time.Second
	Reach    = 2 * Interval
)

// The bounds of errors. resolution is of one difference ("a resolution of approximately 0.5
// microseconds": CUDA driver API, cuEventElapsedTime), unknownRate is how much of a difference the clocks may
// differ by while no two bases say more, and wander how much their rate may change between two bases.
const (
	resolution  = 500 * time.Nanosecond
	unknownRate = 200e-6
	wander      = 2e-6
)

// readings is how often a base is recorded. Of all the readings the closest on either side bound it.
const readings = 8

// mostPoints is how many bases the line is laid through.
const mostPoints = 8

// asPart is where between the closest readings the record lies, about: the answer takes longer to be seen than the request
// to arrive. On an H100 with driver 580, 8 streams at work, it was 3.1 to 3.3 µs behind the one and 6.9 to 8.6 before the other.
const asPart = 3

// ErrFar is the error for a record more than [Reach] from the newest base: its time is not known.
var ErrFar = errors.New("the record is too long ago for the device's clock")

// ErrBusy is the error of a renewal that the device did not answer at once.
var ErrBusy = errors.New("the device does not come to the record of its clock")

// patience is how long an answer is waited for. The stream has nothing else to do, but a device has fewer queues
// than streams: what another stream put into the same one may be in front. It is asked so many times at least, for who
// asks may have been held up himself.
const (
	patience = 5 * time.Millisecond
	asked    = 100
)

// Clock is the clock of one device. It is not safe for concurrent use, and does not block but in
// Renew, a few milliseconds at most.
type Clock struct {
	drv    driver.Driver
	now    func() monotime.Instant
	stream driver.Stream
	opened bool // there is a stream
	// newest is the newest base, spare are what the next is recorded in.
	newest base
	spare  [2]driver.Event
	// points are the newest bases as they were read, each within Reach of the one before.
	points []point
	// rate is how much longer the host's clock runs than the device's, as a part, rateError its bound.
	rate, rateError float64
}

// base is a record of which the host's time is known: surely between from and to.
type base struct {
	event        driver.Event
	taken        bool
	at, from, to monotime.Instant
}

func (b *base) bound() time.Duration {
	return max(b.at.Since(b.from).Abs(), b.to.Since(b.at).Abs()) + 1
}

// point is a base on the line, so long after the one before. It weighs more the closer its readings were.
type point struct {
	at     monotime.Instant
	after  time.Duration
	weight float64
}

func (b *base) point(after time.Duration) point {
	apart := max(float64(b.to-b.from), 0) + 1
	return point{at: b.at, after: after, weight: 1 / (apart * apart)}
}

// New returns a clock of drv. It makes no call.
func New(drv driver.Driver) *Clock {
	return &Clock{drv: drv, now: hostClock(drv), rateError: unknownRate}
}

// hostClock is the process' monotonic clock, or that of a device whose time is simulated.
func hostClock(drv driver.Driver) func() monotime.Instant {
	if simulated := driver.HostTimeOf(drv); simulated != nil {
		return func() monotime.Instant { return monotime.Instant(simulated()) }
	}
	return monotime.Now
}

// Now is the host's clock.
func (c *Clock) Now() monotime.Instant { return c.now() }

// Due reports whether the base is to be renewed: at first after a tenth of [Interval], then after twice the time that lay between
// the last two, so that the rate is known soon, and from then on after [Interval].
func (c *Clock) Due() bool {
	lasts := Interval / 10
	if n := len(c.points); n > 0 {
		lasts = min(max(lasts, 2*c.points[n-1].after), Interval)
	}
	return !c.newest.taken || c.now().Since(c.newest.at) >= lasts
}

// Renew takes a new base. steady is false if the clocks did not go on together since the last one, because
// the machine slept or a clock was set: what was recorded before cannot be placed. Errors are the
// driver's and [ErrBusy], after which the last base stays.
func (c *Clock) Renew() (steady bool, err error) {
	if err := c.open(); err != nil {
		return false, err
	}
	taken, err := c.takeBase()
	if err != nil {
		return false, err
	}
	steady = true
	if c.newest.taken {
		steady, err = c.compare(&c.newest, &taken)
	}
	c.newest, c.spare[1] = taken, c.newest.event
	return steady, err
}

// open makes the stream and the events that are missing. An earlier open, or a Close, may have
// failed halfway.
func (c *Clock) open() (err error) {
	if !c.opened {
		if c.stream, err = c.drv.StreamCreate(); err != nil {
			return err
		}
		c.opened = true
	}
	for _, e := range [...]*driver.Event{&c.newest.event, &c.spare[0], &c.spare[1]} {
		if *e != 0 {
			continue
		}
		if *e, err = c.drv.TimingEventCreate(); err != nil {
			return err // the next look goes on, and Close gives back what there is
		}
	}
	return nil
}

// takeBase takes a base in spare[1], and narrows it by readings of the other.
func (c *Clock) takeBase() (base, error) {
	from, to, err := c.take(c.spare[1])
	if err != nil {
		return base{}, err
	}
	b := base{event: c.spare[1], taken: true, from: from, to: to}
	for range readings - 1 {
		before, after, err := c.take(c.spare[0])
		if err != nil {
			return base{}, err
		}
		later, err := c.drv.EventElapsed(c.spare[1], c.spare[0])
		if err != nil {
			return base{}, err
		}
		before, after = before-monotime.Instant(later), after-monotime.Instant(later)
		from, to = max(from, before), min(to, after)
		may := monotime.Instant(rounding(later))
		b.from, b.to = max(b.from, before-may), min(b.to, after+may)
	}
	b.at = from + (to-from)/asPart
	return b, nil
}

// take records e, and reads the clock before and after.
func (c *Clock) take(e driver.Event) (before, after monotime.Instant, err error) {
	before = c.now()
	if err := c.drv.EventRecord(e, c.stream); err != nil {
		return 0, 0, err
	}
	started := monotime.Now()
	for times := 1; ; times++ {
		if done, err := c.drv.EventQuery(e); err != nil {
			return 0, 0, err
		} else if done {
			return before, c.now(), nil
		}
		if times >= asked && monotime.Now().Since(started) > patience {
			return 0, 0, ErrBusy
		}
		runtime.Gosched()
	}
}

// compare learns the rate from a base and those before it, and corrects it.
func (c *Clock) compare(last, next *base) (steady bool, err error) {
	device, err := c.drv.EventElapsed(last.event, next.event)
	if err != nil {
		c.points = c.points[:0]
		return false, err
	}
	// How much longer the host took is between these.
	least := float64(next.from.Since(last.to) - device - rounding(device))
	most := float64(next.to.Since(last.from) - device + rounding(device))
	if drift := unknownRate * float64(next.at.Since(last.at)); least > drift || most < -drift {
		c.rate, c.rateError, c.points = 0, unknownRate, c.points[:0]
		return false, nil
	}
	if device <= 0 || device > Reach {
		c.points = c.points[:0]
		return true, nil
	}
	switch len(c.points) {
	case 0:
		c.points = append(c.points, last.point(0))
	case mostPoints:
		c.points = slices.Delete(c.points, 0, 1)
	}
	c.points = append(c.points, next.point(device))
	rate, off := c.line()
	next.at = min(max(next.at+off, next.from), next.to)
	if e := max(most/float64(device)-rate, rate-least/float64(device)) + wander; e < unknownRate {
		c.rate, c.rateError = rate, e
	}
	return true, nil
}

// line is that of least squares through the points: its rate, and how far from the newest point it ends.
func (c *Clock) line() (rate float64, off monotime.Instant) {
	var n, x, y, xx, xy, device float64
	newest := c.points[len(c.points)-1].at
	for _, p := range slices.Backward(c.points) {
		w, ahead := p.weight, float64(p.at-newest)-device
		n, x, y, xx, xy = n+w, x+w*device, y+w*ahead, xx+w*device*device, xy+w*device*ahead
		device -= float64(p.after)
	}
	rate = (n*xy - x*y) / (n*xx - x*x)
	return rate, monotime.Instant((y - rate*x) / n)
}

// rounding bounds how far the driver's answer is from the truth.
func rounding(d time.Duration) time.Duration {
	ms := float32(d.Abs().Seconds() * 1e3)
	return resolution + time.Duration(float64(math.Nextafter32(ms, math.MaxFloat32)-ms)*1e6)
}

// At is when the device came to the current record of e, which is done, and how far from that the truth
// may be. Errors are [ErrFar] and the driver's.
func (c *Clock) At(e driver.Event) (at monotime.Instant, bound time.Duration, err error) {
	after, err := c.drv.EventElapsed(c.newest.event, e)
	if err != nil {
		return 0, 0, err
	}
	if after.Abs() > Reach {
		return 0, 0, ErrFar
	}
	onHost := after + time.Duration(c.rate*float64(after))
	bound = c.newest.bound() + rounding(after) + time.Duration(c.rateError*float64(after.Abs()))
	return c.newest.at + monotime.Instant(onHost), bound, nil
}

// Close gives back what the clock has of the driver. After an error it may be called again, and so
// may Renew.
func (c *Clock) Close() error {
	if !c.opened {
		return nil
	}
	events := [...]driver.Event{c.newest.event, c.spare[0], c.spare[1]}
	err := Destroy(c.drv, events[:])
	c.newest, c.spare = base{event: events[0]}, [2]driver.Event(events[1:])
	if err == nil {
		err = unlessLost(c.drv.StreamDestroy(c.stream))
	}
	c.opened = err != nil
	return err
}

// Destroy destroys events, and makes those zero that are gone: all of a device that is lost.
func Destroy(drv driver.Driver, events []driver.Event) (first error) {
	for i, e := range events {
		if e == 0 {
			continue
		}
		if err := unlessLost(drv.EventDestroy(e)); err != nil {
			first = cmp.Or(first, err)
			continue
		}
		events[i] = 0
	}
	return first
}

func unlessLost(err error) error {
	if errors.Is(err, core.ErrSticky) {
		return nil
	}
	return err
}
