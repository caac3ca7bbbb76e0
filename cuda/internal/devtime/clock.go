// Package devtime puts times of a device on the host's clock.
//
// The device tells how long one record of an event came after another, and nothing else. So now
// and then a [Clock] records an event of its own, a base, on a stream where nothing else is, and reads the
// host's clock before and after. How far the two readings are apart bounds the error of one base. The
// two clocks run at different rates, by some tens of microseconds in a second, and
// the host's is slewed besides, so the newest two bases that are close together also say how long
// the host took for a second of the device.
package devtime

import (
	"cmp"
	"errors"
	"math"
	"runtime"
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

// readings is how often a base is taken to keep the one with the closest readings, at most: one that is as close as the closest of
// the last time but for a part in nearly ends that. Where within such readings the record lies is then much the same each time.
const (
	readings = 8
	nearly   = 16
)

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
	opened bool
	// newest is the newest base, spare are what the next is recorded in.
	newest base
	spare  [2]driver.Event
	// closest is a bound that is good enough for the next.
	closest time.Duration
	// rate is how much longer the host's clock runs than the device's, as a part, rateError its bound.
	rate, rateError float64
}

// base is a record of which the host's time is known.
type base struct {
	event driver.Event
	at    monotime.Instant
	bound time.Duration // zero while there is no base
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

// Due reports whether the base is to be renewed: after [Interval], and once after a tenth of that, so that the rate is known.
func (c *Clock) Due() bool {
	lasts := Interval
	if c.rateError == unknownRate {
		lasts /= 10
	}
	return c.newest.bound == 0 || c.now().Since(c.newest.at) >= lasts
}

// Renew takes a new base. steady is false if the clocks did not go on together since the last one, because
// the machine slept or a clock was set: what was recorded before cannot be placed. Errors are the
// driver's and [ErrBusy], after which the last base stays.
func (c *Clock) Renew() (steady bool, err error) {
	if err := c.open(); err != nil {
		return false, err
	}
	var taken base // in spare[1]
	for range readings {
		next, err := c.take(c.spare[0])
		if err != nil {
			return false, err
		}
		if taken.bound == 0 || next.bound < taken.bound {
			taken, c.spare[0], c.spare[1] = next, c.spare[1], c.spare[0]
		}
		if taken.bound <= c.closest {
			break
		}
	}
	if near := taken.bound + taken.bound/nearly; taken.bound > c.closest || near < c.closest {
		c.closest = near
	}
	steady = true
	if c.newest.bound > 0 {
		steady, err = c.compare(&c.newest, &taken)
	}
	c.newest, c.spare[1] = taken, c.newest.event
	return steady, err
}

// open makes the stream and the events once.
func (c *Clock) open() (err error) {
	if c.opened {
		return nil
	}
	if c.stream, err = c.drv.StreamCreate(); err != nil {
		return err
	}
	c.opened = true
	for _, e := range [...]*driver.Event{&c.newest.event, &c.spare[0], &c.spare[1]} {
		if *e, err = c.drv.TimingEventCreate(); err != nil {
			return cmp.Or(err, c.Close())
		}
	}
	return nil
}

func (c *Clock) take(e driver.Event) (base, error) {
	before := c.now()
	if err := c.drv.EventRecord(e, c.stream); err != nil {
		return base{}, err
	}
	started := monotime.Now()
	for times := 1; ; times++ {
		if done, err := c.drv.EventQuery(e); err != nil {
			return base{}, err
		} else if done {
			break
		}
		if times >= asked && monotime.Now().Since(started) > patience {
			return base{}, ErrBusy
		}
		runtime.Gosched()
	}
	apart := c.now().Since(before)
	return base{event: e, at: before + monotime.Instant(apart/2), bound: apart/2 + 1}, nil
}

// compare learns the rate from two bases.
func (c *Clock) compare(last, next *base) (steady bool, err error) {
	device, err := c.drv.EventElapsed(last.event, next.event)
	if err != nil {
		return false, err
	}
	host, bound := next.at.Since(last.at), last.bound+next.bound+rounding(device)
	ahead := host - device
	if float64(ahead.Abs()-bound) > unknownRate*float64(host) {
		c.rate, c.rateError = 0, unknownRate
		return false, nil
	}
	if device > 0 && device <= Reach {
		if e := float64(bound)/float64(device) + wander; e < unknownRate {
			c.rate, c.rateError = float64(ahead)/float64(device), e
		}
	}
	return true, nil
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
	bound = c.newest.bound + rounding(after) + time.Duration(c.rateError*float64(after.Abs()))
	return c.newest.at + monotime.Instant(onHost), bound, nil
}

// Close gives back what the clock has of the driver. After an error it may be called again.
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
